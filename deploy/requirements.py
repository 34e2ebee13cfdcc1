"""Prints the dependencies in pyproject.toml with the given extras: python requirements.py compile redis

An image installs them before it has the code, for which pip has no command.
"""

import sys
import tomllib

if __name__ == "__main__":
    with open("pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in sys.argv[1:])]
    print(*(requirement for requirements in groups for requirement in requirements), sep="\n")
