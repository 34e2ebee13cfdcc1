"""The install steps of the Dockerfile, run on this machine: python -m tests.deploy.image [light|cpu|cuda]...

Each target's steps run in an empty virtual environment, which takes minutes and the package index; then what was
installed compiles a constraint, and, where it has PyTorch, goes through the demo.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.deploy import dockerfile

STEP_S_MAX = 1_800.0
FIRST = "python -m venv /opt/abs"


def run_steps(target: str, folder: Path) -> None:
    """Runs the steps that fill a target's environment in folder/abs, except the one that creates it."""
    source = folder / "src"
    source.mkdir(exist_ok=True)
    inside = {"/opt/abs": str(folder / "abs"), "/wheel": str(folder / "wheel"), "/src": str(source)}
    own = dict(os.environ) | {"PATH": f"{folder}/abs/bin:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done: set[str] = set()
    for stage in (*dockerfile.lineage("wheel"), *dockerfile.lineage(f"{target}-installed")):
        for word, rest in stage.steps if stage.name not in done else ():
            if word == "COPY" and not rest.startswith("--from"):
                _copy(rest.split(), source)
            elif word == "ARG":
                name, _, value = rest.partition("=")
                own[name] = value.strip('"')
            elif word == "RUN" and rest != FIRST:
                for there, here in inside.items():
                    rest = rest.replace(there, here)
                said = subprocess.run(
                    ["sh", "-euc", rest], cwd=source, env=own, capture_output=True, text=True, timeout=STEP_S_MAX
                )
                if said.returncode:
                    raise RuntimeError(f"{rest}\n{said.stdout}{said.stderr}")
        done.add(stage.name)


def _copy(words: list[str], source: Path) -> None:
    *names, last = words
    for name in names:
        there = source / (last if last != "./" else Path(name).name)
        if (dockerfile.ROOT / name).is_dir():
            shutil.copytree(dockerfile.ROOT / name, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(dockerfile.ROOT / name, there)


def check(target: str) -> None:
    """Install a target from nothing, and use it. Raises RuntimeError, or CalledProcessError, where that fails."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="abs-image-") as name:
        folder = Path(name)
        subprocess.run(["python3", "-m", "venv", str(folder / "abs")], check=True)
        run_steps(target, folder)
        print(f"{target}: installed after {time.monotonic() - began:.0f} s", flush=True)
        own = {"PATH": f"{folder}/abs/bin", "HOME": name, "OMP_NUM_THREADS": "1"}
        for command in (["abs", "compile", "--regex", "[a-z]+!"], *([["abs", "demo"]] if target != "light" else [])):
            subprocess.run(command, cwd=name, env=own, check=True, timeout=STEP_S_MAX)
        torch = list(folder.glob("abs/lib/*/site-packages/torch"))
        if bool(torch) != (target != "light"):
            raise RuntimeError(f"{target}: PyTorch is {'there' if torch else 'missing'}")
    print(f"{target}: good", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=["light", "cpu"])
    for one in parser.parse_args().targets:
        check(one)
