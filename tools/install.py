"""Installs the service into .venv: python3 tools/install.py serve|dev|reference [--torch WHERE]

Needs only Python with pip. Every package but PyTorch comes from locks/ by its hash. PyTorch, the largest, has its own
step, which runs beside the others. Its build is chosen from, in this order:

1. --torch (`make` passes its variable TORCH): a folder of wheels, the address of an index, or a backend of uv, such as
   cpu, cu130 or auto;
2. pip's own configuration (find-links, extra indexes), where it offers a build with a local version, such as +cpu;
3. PyTorch's own builds, of which uv takes the one for this machine's GPU, or the CPU build where there is none;
4. the package index, whose builds for Linux bring CUDA.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "locks"
FILES = {
    "serve": ("light", "inference", "build"),
    "dev": ("light", "inference", "build", "dev"),
    "reference": ("light", "inference", "build", "dev", "reference"),
}
CPU, CUDA = "about 200 MB", "about 3 GB with CUDA"  # the downloads of PyTorch 2.13 for Linux
QUICK = {"UV_HTTP_RETRIES": "0", "UV_HTTP_CONNECT_TIMEOUT": "10"}  # where uv reaches no index, pip may
# Only these modules are compiled beforehand: that takes ten seconds at their first import, and most files of the
# packages are never imported.
IMPORTED = "import torch; from transformers import AutoModelForCausalLM, LlamaForCausalLM"


@dataclass(frozen=True)
class Source:
    """Where PyTorch comes from: the install command, and its description."""

    command: tuple[str, ...]
    description: str


class Environment:
    """The virtual environment, and how to install into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        self.has_own_pip = True
        if not Path(self.python).exists():
            outer = [sys.executable, "-m", "pip", "--python", sys.executable, "--version"]
            # Where Python's pip can install into another environment, that environment's own pip can come later.
            self.has_own_pip = subprocess.run(outer, capture_output=True).returncode != 0
            without = [] if self.has_own_pip else ["--without-pip"]
            subprocess.run([sys.executable, "-m", "venv", *without, str(folder)], check=True)
        own = (self.python, "-m", "pip")
        self.pip = own if self.has_own_pip else (sys.executable, "-m", "pip", "--python", self.python)
        self.install = (*self.pip, "install", "--quiet", "--no-compile")

    def bring_pip(self) -> None:
        if not self.has_own_pip:
            subprocess.run([self.python, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)

    @cached_property
    def uv(self) -> str | None:
        """The program uv, installed if missing; None if unavailable."""
        path = self.folder / "bin" / "uv"
        if not path.exists():
            print(f"downloading uv, which installs the others: {packages(('uv',))}", flush=True)
            locked = ("--no-deps", "--require-hashes", "--requirement", str(LOCKS / "uv.txt"))
            if subprocess.run((*self.install, *locked), capture_output=True).returncode:
                return None
        return str(path)


def locked_torch() -> str:
    return next(line for line in (LOCKS / "torch.txt").read_text().splitlines() if line.startswith("torch=="))


def named_source(environment: Environment, where: str) -> Source:
    """The source that the variable TORCH names."""
    if Path(where).is_dir():
        return Source((*environment.install, "--no-index", "--find-links", where), f"from the folder {where}")
    if "://" in where:
        return Source((*environment.install, "--index-url", where), f"from the index that TORCH names, {CPU} or {CUDA}")
    source = backend_source(environment, where)
    if source is None:
        raise SystemExit(f"TORCH={where} is no folder and no index, and uv, for its backends, cannot be installed")
    return source


def configured_source(environment: Environment) -> Source | None:
    """pip, where PyTorch is installed or pip's configuration offers a build."""
    listed = subprocess.run((*environment.pip, "index", "versions", "torch"), capture_output=True, text=True).stdout
    offered, _, installed = listed.partition("INSTALLED:")
    version = re.escape(locked_torch().partition("==")[2])
    if re.match(rf"\s*{version}(\+|\s)", installed):
        return Source(environment.install, "installed already")
    build = re.search(rf"\b{version}\+([\w.]+)", offered)
    if build is None:
        return None
    size = CPU if build[1] == "cpu" else CUDA
    return Source(environment.install, f"{build[0]} that pip is configured to find, {size}")


def backend_source(environment: Environment, backend: str) -> Source | None:
    """PyTorch's own builds, where uv is to be had and finds them."""
    uv = environment.uv
    if uv is None:
        return None
    command = (uv, "pip", "install", "--python", environment.python, "--torch-backend", backend)
    return Source(command, f"{CPU} without a GPU, {CUDA}, from PyTorch's own builds")


def choose_source(environment: Environment, where: str) -> Source:
    if where:
        return named_source(environment, where)
    index = Source(environment.install, f"from the package index, {CUDA if sys.platform == 'linux' else CPU}")
    found = configured_source(environment)
    if found is not None or sys.platform != "linux":  # only the index's builds for Linux bring CUDA
        return found or index
    backend = backend_source(environment, "auto")
    dry_run = (*backend.command, "--quiet", "--dry-run", "--no-deps", locked_torch()) if backend else ("false",)
    environ = dict(os.environ) | QUICK
    if backend is not None and subprocess.run(dry_run, capture_output=True, env=environ).returncode == 0:
        return backend
    print("PyTorch's own builds cannot be reached, so that the package index's build is taken, which brings CUDA")
    return index


def packages(files: tuple[str, ...]) -> str:
    """The number and size of the packages of locks/."""
    sizes = [re.search(r"(\d+) packages, (\d+) MB", (LOCKS / f"{name}.txt").read_text()) for name in files]
    counts, megabytes = zip(*((int(size[1]), int(size[2])) for size in sizes if size), strict=True)
    return f"{sum(counts)} packages of locks/, {sum(megabytes)} MB"


def install_locked(environment: Environment, files: tuple[str, ...]) -> None:
    """Installs the packages of locks/ by uv, or by pip.

    uv takes a seventh of pip's processor time. It does not read pip's configuration, so an index that only pip knows is
    reached by pip alone.
    """
    locked = ("--no-deps", "--require-hashes", *(f"--requirement={LOCKS / name}.txt" for name in files))
    uv = environment.uv
    command = (uv, "pip", "install", "--quiet", "--python", environment.python, *locked) if uv else ("false",)
    if subprocess.run(command, capture_output=True, env=dict(os.environ) | QUICK).returncode:
        subprocess.run((*environment.install, *locked), check=True)


def install(environment: Environment, files: tuple[str, ...], where: str) -> None:
    source = choose_source(environment, where)
    contents = f"{locked_torch()} ({source.description}) and {packages(files)}"
    print(f"downloading into {environment.folder.name}: {contents}", flush=True)
    failures: list[BaseException] = []

    def bring_torch() -> None:
        try:
            subprocess.run((*source.command, "--no-deps", locked_torch()), check=True)
            subprocess.Popen([environment.python, "-c", IMPORTED], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=bring_torch)
    thread.start()
    install_locked(environment, files)
    ours = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    subprocess.run((*environment.install, *ours), check=True)
    thread.join()
    if failures:
        raise failures[0]
    environment.bring_pip()  # now, because it would add setuptools of another version than the locked one
    # What the chosen build needs beside locks/: the packages of CUDA, or nothing.
    subprocess.run((*source.command, locked_torch()), check=True)
    subprocess.Popen([environment.python, "-c", IMPORTED], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=FILES)
    parser.add_argument("--torch", default="", metavar="WHERE", help="where PyTorch is taken from")
    options = parser.parse_args()
    try:
        install(Environment(ROOT / ".venv"), FILES[options.what], options.torch)
    except subprocess.CalledProcessError as error:
        print(f"not installed: {' '.join(map(str, error.cmd))} ended with {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036  this runs in whichever Python the user has
        raise SystemExit(f"Python 3.11 or newer is needed, set PYTHON: {sys.executable} is {sys.version.split()[0]}")
    raise SystemExit(main())
