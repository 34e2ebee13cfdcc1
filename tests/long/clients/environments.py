"""Makes the environments of the clients under .cache/clients.

A file requirements/NAME.txt makes an environment of Python, a folder requirements/NAME with a package.json one of Node.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements"
ENVIRONMENTS = HERE.parents[2] / ".cache" / "clients"
_RECORD = "requirements-record.txt"  # the requirements of a complete environment


class ClientUnavailable(Exception):
    """A client cannot be installed here."""


def names() -> list[str]:
    """The clients."""
    return sorted(path.stem for path in REQUIREMENTS.iterdir())


def version(name: str) -> str:
    """The version of a client, the first of its requirements."""
    if _uses_node(name):
        package = json.loads((REQUIREMENTS / name / "package.json").read_text(encoding="utf-8"))
        return str(next(iter(package["dependencies"].values())))
    return (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()[0].partition("==")[2]


def command(name: str) -> list[str]:
    """The command that runs the checks of a client, in its environment. Raises ClientUnavailable."""
    folder = ENVIRONMENTS / name
    record, requirements = folder / _RECORD, _requirements(name)
    if not record.exists() or record.read_text(encoding="utf-8") != requirements:
        shutil.rmtree(folder, ignore_errors=True)
        if _uses_node(name):
            _make_node_environment(name, folder)
        else:
            _run([sys.executable, "-m", "venv", str(folder)])
            install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement"]
            _run([*install, str(REQUIREMENTS / f"{name}.txt")])
        record.write_text(requirements, encoding="utf-8")
    if _uses_node(name):
        module = Path(shutil.copy(HERE / f"{_module(name)}.mjs", folder))  # Node looks for packages beside it
        return [_node(), str(module)]
    return [str(folder / "bin" / "python"), "-m", f"{__package__}.{_module(name)}"]


def _module(name: str) -> str:
    return f"{name.replace('-', '_')}_client"


def _uses_node(name: str) -> bool:
    return (REQUIREMENTS / name).is_dir()


def _requirements(name: str) -> str:
    path = REQUIREMENTS / name / "package-lock.json" if _uses_node(name) else REQUIREMENTS / f"{name}.txt"
    return path.read_text(encoding="utf-8")


def _make_node_environment(name: str, folder: Path) -> None:
    _node()
    shutil.copytree(REQUIREMENTS / name, folder)
    _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)])


def _node() -> str:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        raise ClientUnavailable("there is no Node with npm on the path")
    return node


def _run(arguments: list[str]) -> None:
    try:
        subprocess.run(arguments, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        raise ClientUnavailable(f"it cannot be installed: {lines[-1] if lines else error}") from None
