"""Resolves the files of locks/ again with uv: python -m tools.lock [--upgrade]

One resolution covers every extra, so that the files agree. A file holds what the files before it lack, with hashes.
Without --upgrade the locked versions stay where the requirements still allow them. torch.txt has no hash, because
PyTorch's CPU and CUDA builds have one version and different hashes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "locks"
SERVING = ("compile", "redis", "otel")
EXTRAS = {  # each file's extras of the project
    "light": SERVING,
    "inference": (*SERVING, "inference"),
    "dev": (*SERVING, "inference", "up", "dev"),
    "reference": (*SERVING, "inference", "up", "dev", "reference"),
}
GROUPS = ("build", "uv", "audit", "fado")  # each is resolved by itself
ALONE = ("fado",)  # groups without what their packages declare
# What PyTorch's builds for Linux require of CUDA. Their own step installs it, where the chosen build needs it.
CUDA = (
    "cuda-bindings", "cuda-toolkit", "nvidia-cudnn-cu13", "nvidia-cusparselt-cu13", "nvidia-nccl-cu13",
    "nvidia-nvshmem-cu13", "triton",
)  # fmt: skip
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("x86_64-manylinux_2_36", "aarch64-manylinux_2_36", "aarch64-apple-darwin")
FOR = "Linux on x86-64 and arm64 and macOS on arm64, Python 3.11 to 3.14"
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\\\n]*[^\\\s])", re.MULTILINE)
# The wheels of the platform whose size of download the files name.
SIZED = re.compile(r"(-cp311-cp311-|-abi3-|-py3-none-)manylinux.*x86_64|-none-any\.whl$")


def uv(*arguments: str) -> str:
    """What a command of uv prints. Raises CalledProcessError where it fails; uv has then said why."""
    command = [str(Path(sys.executable).with_name("uv")), *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def pins(text: str) -> dict[str, str]:
    """The version and the marker of each package."""
    return dict(PIN.findall(text))


def resolve(*arguments: str, output: Path | None = None, file_format: str = "requirements.txt") -> str:
    """The lock of one set of requirements. An output file that exists gives the preferred versions."""
    options = ["--quiet", "--universal", "--python-version", PYTHONS[0], "--no-header", "--no-annotate"]
    options += ["--generate-hashes"] if file_format == "requirements.txt" else []
    options += ["--output-file", str(output)] if output else []
    return uv("pip", "compile", *options, "--format", file_format, *arguments)


def size_in_mb(pylock: str, names: set[str]) -> float:
    """The size of the packages' wheels for Linux on x86-64."""
    total = 0
    for package in tomllib.loads(pylock)["packages"]:
        sizes = [file["size"] for file in package.get("wheels", ()) if SIZED.search(file["url"])]
        total += max(sizes, default=0) if package["name"] in names else 0
    return total / 1e6


def write(name: str, arguments: tuple[str, ...], earlier: dict[str, str]) -> dict[str, str]:
    """Write one file without earlier packages, and return its packages."""
    leave = [f"--no-emit-package={package}" for package in ("torch", *earlier)]
    text = resolve(*arguments, *leave)
    found = pins(text)
    mb = size_in_mb(resolve(*arguments, file_format="pylock.toml"), set(found))
    head = f"# Written by `make lock` for {FOR}.\n# Download for Linux on x86-64: {len(found)} packages, {mb:.0f} MB.\n"
    (LOCKS / f"{name}.txt").write_text(head + text, encoding="utf-8")
    print(f"locks/{name}.txt: {len(found)} packages, {mb:.0f} MB", flush=True)
    return found


def lock(folder: Path, upgrade: bool) -> None:
    excluded = folder / "excluded.txt"
    excluded.write_text("\n".join(CUDA), encoding="utf-8")
    everything = folder / "everything.txt"
    if not upgrade:
        everything.write_text("\n".join(path.read_text(encoding="utf-8") for path in sorted(LOCKS.glob("*.txt"))))
    project = ("pyproject.toml", "--excludes", str(excluded))
    resolve(*project, "--all-extras", output=everything)
    versions = pins(everything.read_text(encoding="utf-8"))
    cuda = [name for name in versions if name.startswith(("cuda", "nvidia", "triton"))]
    if cuda:
        raise SystemExit(f"add to CUDA in tools/lock.py what PyTorch requires now: {', '.join(cuda)}")
    earlier: dict[str, str] = {}
    for name, names in EXTRAS.items():
        extras = [f"--extra={extra}" for extra in names]
        found = write(name, (*project, *extras, "--constraint", str(everything)), earlier)
        # A later file repeats a package that it needs in more places than this one, such as colorama.
        earlier |= {package: pin for package, pin in found.items() if versions[package] == pin}
    for name in GROUPS:
        alone = ("--no-deps",) if name in ALONE else ()
        write(name, ("--group", f"pyproject.toml:{name}", "--constraint", str(everything), *alone), {})
    torch = f"# Without hashes: tools/install.py says where the build is taken from.\ntorch=={versions['torch']}\n"
    (LOCKS / "torch.txt").write_text(torch, encoding="utf-8")


def check() -> None:
    """Find a wheel of every package for every platform and Python. Only packages of the benchmarks may lack one."""
    files = [f"--requirement=locks/{name}.txt" for name in (*EXTRAS, *GROUPS) if name != "reference"]
    for platform in PLATFORMS:
        for python in PYTHONS:
            with tempfile.TemporaryDirectory() as target:
                uv("pip", "install", "--quiet", "--dry-run", "--target", target, "--python-platform", platform,
                   "--python-version", python, "--require-hashes", "--no-deps", "--no-build", *files)  # fmt: skip
        print(f"{platform}: Python {', '.join(PYTHONS)} find a wheel of every package", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    with tempfile.TemporaryDirectory() as name:
        lock(Path(name), parser.parse_args().upgrade)
    check()
