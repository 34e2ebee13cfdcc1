"""Makes the environments of the systems that are not ours, under .cache/systems; `make reference` runs it.

    python -m benchmarks.systems.environments [NAME ...]

An environment holds what its file under requirements/ says, and nothing else. One that does not name PyTorch sees ours,
with transformers, after its own: that is a gigabyte less for each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

from benchmarks.systems.catalogue import ENVIRONMENTS, REQUIREMENTS

_BORROWS = "ours.pth"  # read by Python at its start: one more folder to import from


def names() -> list[str]:
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def stale(name: str) -> bool:
    """True where an environment is not what its file says now."""
    made = ENVIRONMENTS / name / "made-from.txt"
    return not made.exists() or made.read_text(encoding="utf-8") != _wanted(name).read_text(encoding="utf-8")


def make(name: str) -> None:
    """Make an environment anew. Raises CalledProcessError."""
    folder, wanted = ENVIRONMENTS / name, _wanted(name)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    python = folder / "bin" / "python"
    whole = any(line.startswith("torch==") for line in wanted.read_text(encoding="utf-8").splitlines())
    install = [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(wanted)]
    subprocess.run(install if whole else [*install, "--no-deps"], check=True)
    if not whole:
        where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        own = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
        (Path(own) / _BORROWS).write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    (folder / "made-from.txt").write_text(wanted.read_text(encoding="utf-8"), encoding="utf-8")


def _wanted(name: str) -> Path:
    return REQUIREMENTS / f"{name}.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; all where none is given")
    for name in parser.parse_args().names or names():
        if stale(name):
            print(f"making {ENVIRONMENTS / name}", flush=True)
            make(name)


if __name__ == "__main__":
    main()
