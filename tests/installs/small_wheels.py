"""Wheels of a few hundred bytes, and their build backend."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def make_wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """Write a wheel with one empty module, for any platform."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {requirement}" for requirement in requires)]
    files = {
        f"{module}.py": "",
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", *metadata, ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def make_index(folder: Path, wheels: Sequence[Path]) -> str:
    """Write a package index of wheels, and return its address."""
    for wheel in wheels:
        page = folder / wheel.name.partition("-")[0].replace("_", "-") / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("a", encoding="utf-8") as file:
            file.write(f'<a href="{wheel.as_uri()}">{wheel.name}</a>\n')
    return folder.as_uri()


def sha256(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """The hook of PEP 660 for a project with this backend."""
    return make_wheel(Path(wheel_directory), "small-project", "1.0").name
