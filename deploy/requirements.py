"""Print what pyproject.toml depends on, with the extras named: python requirements.py compile redis

An image installs these before the code is there, which pip itself has no command for.
"""

import sys
import tomllib

if __name__ == "__main__":
    with open("pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    wanted = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in sys.argv[1:])]
    print(*(requirement for requirements in wanted for requirement in requirements), sep="\n")
