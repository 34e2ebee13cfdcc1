"""Installs wheel and sdist, runs the demo: python -m tools.distributions FOLDER [WHERE]

Each gets a new environment with PyTorch from the source that tools/install.py chooses (WHERE is its variable TORCH);
pip resolves everything else from the metadata, without locks/.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.install import ROOT, Environment, choose_source, locked_torch


def main(folder: Path, where: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    hatchling = Path(sys.executable).with_name("hatchling")
    for target in ("sdist", "wheel"):
        subprocess.run((hatchling, "build", "--target", target, "--directory", folder / "dist"), cwd=ROOT, check=True)
    for file in sorted((folder / "dist").iterdir()):
        environment = Environment(folder / "environment")
        subprocess.run((*choose_source(environment, where).command, locked_torch()), check=True)
        subprocess.run((*environment.pip, "install", "--quiet", f"{file}[inference]"), check=True)
        programs = environment.folder / "bin"
        subprocess.run((programs / "abs", "demo"), cwd=folder, check=True, stdout=subprocess.DEVNULL)
        print(f"{file.name}[inference] is installed and runs the demo", flush=True)
        shutil.rmtree(environment.folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "")
