"""Verifies a model's files by their SHA-256 before loading.

A model is identified by a list in the format of `sha256sum`, one line per file, and by the digest of that list, which
ABS_MODEL_SHA256 pins. The lists of the built-in models are part of the package. Another model may have its list in
its folder as SHA256SUMS; if that list has the pinned digest, the error names the files that differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from app.errors import ModelChanged
from app.models.files import FILES, download
from app.models.sources import ModelSource
from app.settings import BUILT_IN, PREFIX

WEIGHTS = (("*.safetensors", "*.safetensors.index.json"), ("*.bin", "*.bin.index.json"))  # by preference
LIST = "SHA256SUMS"


def checked_model(source: ModelSource) -> str:
    """Verifies a model's files and returns the model to load. It is a folder if there is a digest to verify.

    Raises ModelChanged if the files differ, SettingsInvalid if they cannot be downloaded.
    """
    model = source.location
    if not source.sha256 and _built_in_list(source) is None:
        return model
    patterns = (*FILES, *(pattern for kind in WEIGHTS for pattern in kind))
    folder = Path(model) if Path(model).is_dir() else download(model, patterns)
    require_meant(digests_of(folder), folder, source)
    return str(folder)


def require_meant(digests: Mapping[str, str], folder: Path, source: ModelSource) -> None:
    """Raises ModelChanged if the digests differ from the expected ones.

    These are a built-in model's or those of the settings.
    """
    expected = _built_in_list(source)
    if expected is not None:
        require_same(digests, read_list(expected), "the built-in model")
    if source.sha256:  # also of a built-in model, if it is pinned
        _require_pinned(digests, source.sha256, folder)


def model_files(folder: Path) -> list[Path]:
    """The files that a model is loaded from, sorted by name. Of the weights it has only the format that is loaded."""
    present = [file for pattern in FILES for file in folder.glob(pattern)]
    weights = ([file for pattern in kind for file in folder.glob(pattern)] for kind in WEIGHTS)
    return sorted({*present, *next((files for files in weights if files), [])})


def digests_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of a model, by name. Raises ModelChanged if a file cannot be read."""
    digests = {}
    for path in model_files(folder):
        try:
            with path.open("rb") as file:
                digests[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ModelChanged(f"the model's file {path.name} cannot be read ({error.strerror})") from None
    return digests


def list_of(digests: Mapping[str, str]) -> str:
    """The list of a model in the format of `sha256sum`."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def digest_of(digests: Mapping[str, str]) -> str:
    """The digest that identifies a model: the SHA-256 of its list."""
    return hashlib.sha256(list_of(digests).encode()).hexdigest()


def read_list(path: Path) -> dict[str, str]:
    """The digests of a list. Raises ModelChanged if the list cannot be read."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError):
        raise ModelChanged(f"the list of the model's files, {path.name}, cannot be read") from None


def require_same(digests: Mapping[str, str], expected: Mapping[str, str], source: str) -> None:
    """Raises ModelChanged with the files that differ, are missing or are additional."""
    differences = [f"{name} {_difference(name, digests, expected)}" for name in sorted({*digests, *expected})
                   if digests.get(name) != expected.get(name)]
    if differences:
        raise ModelChanged(f"the model's files differ from {source}: {', '.join(differences)}")


def _difference(name: str, digests: Mapping[str, str], expected: Mapping[str, str]) -> str:
    if name not in digests:
        return "is missing"
    return "differs" if name in expected else "is not in the list"


def _require_pinned(digests: Mapping[str, str], pinned: str, folder: Path) -> None:
    digest = digest_of(digests)
    if digest == pinned:
        return
    source = f"{PREFIX}MODEL_SHA256"
    # The folder's list is not trusted unless its own digest is the pinned one.
    if (folder / LIST).exists():
        expected = read_list(folder / LIST)
        if digest_of(expected) == pinned:
            require_same(digests, expected, source)
    raise ModelChanged(f"the model's files differ from {source}: their SHA-256 is {digest[:12]}…, not {pinned[:12]}…")


def _built_in_list(source: ModelSource) -> Path | None:
    """The list of a built-in model. None for another one."""
    folders = {Path(folder).resolve(): Path(f"{folder}.sha256") for folder in BUILT_IN.values()}
    return folders.get(Path(source.location).resolve())
