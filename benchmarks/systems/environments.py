"""Makes the other systems' environments under .cache/systems. `make reference` runs it.

    python -m benchmarks.systems.environments [NAME ...]

An environment holds the packages of its file under requirements/, and nothing else. If the file does not name PyTorch,
the environment also sees the packages of this one, after its own: that saves a gigabyte for each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig

from benchmarks.systems.catalogue import ENVIRONMENTS, REQUIREMENTS

_PATH_FILE = "ours.pth"  # Python reads it at its start: one more folder to import from


def names() -> list[str]:
    """The environments for which there is a file of requirements."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def requirements(name: str) -> str:
    """The contents of an environment's file of requirements."""
    return (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")


def is_current(name: str) -> bool:
    """Whether the environment was made from the requirements as they are now."""
    source = ENVIRONMENTS / name / "made-from.txt"
    return source.exists() and source.read_text(encoding="utf-8") == requirements(name)


def make(name: str) -> None:
    """Make an environment; an existing one is replaced. Raises CalledProcessError."""
    folder = ENVIRONMENTS / name
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    has_torch = any(line.startswith("torch==") for line in requirements(name).splitlines())
    install = [python, "-m", "pip", "install", "--quiet", "--requirement", str(REQUIREMENTS / f"{name}.txt")]
    subprocess.run(install if has_torch else [*install, "--no-deps"], check=True)
    if not has_torch:
        command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        with open(f"{packages}/{_PATH_FILE}", "w", encoding="utf-8") as file:
            file.write(sysconfig.get_path("purelib") + "\n")
    (folder / "made-from.txt").write_text(requirements(name), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; default: all")
    for name in parser.parse_args().names or names():
        if not is_current(name):
            print(f"making {ENVIRONMENTS / name}", flush=True)
            make(name)


if __name__ == "__main__":
    main()
