"""Whether the files that a model is loaded from are those that are meant: by their SHA-256, before any is loaded.

A model is known by a list in the form that `sha256sum` writes and checks, a line for each file, and in short by the
digest of that list, which ABS_MODEL_SHA256 names. The built-in model's list lies beside it. The list of another may lie
in its folder as SHA256SUMS; where it has the digest that is named, it can be said which file differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from app.errors import ModelChanged
from app.models.files import FILES, download
from app.settings import BUILT_IN_MODEL, PREFIX, Settings

WEIGHTS = (("*.safetensors", "*.safetensors.index.json"), ("*.bin", "*.bin.index.json"))  # the first kind that is there
LIST = "SHA256SUMS"
BUILT_IN_LIST = Path(f"{BUILT_IN_MODEL}.sha256")


def checked_model(settings: Settings) -> str:
    """The model to be loaded, whose files have been looked at: a folder where anything is known of them.

    Raises ModelChanged where they are not those that are meant, SettingsInvalid where they cannot be had.
    """
    if not _is_known(settings):
        return settings.model
    wanted = (*FILES, *(pattern for kind in WEIGHTS for pattern in kind))
    folder = Path(settings.model) if Path(settings.model).is_dir() else download(settings.model, wanted)
    require_meant(digests_of(folder), folder, settings)
    return str(folder)


def require_meant(found: Mapping[str, str], folder: Path, settings: Settings) -> None:
    """Raise ModelChanged where these digests are not those of the model that is meant, as far as that is known."""
    if _is_built_in(settings.model):
        require_same(found, read_list(BUILT_IN_LIST), "that were shipped")
    if settings.model_sha256:
        _require_pinned(found, settings.model_sha256, folder)


def model_files(folder: Path) -> list[Path]:
    """The files of a model that are read, weights included, by name; of weights in two forms those that are loaded."""
    there = [folder / name for name in FILES if (folder / name).exists()]
    weights = ([file for pattern in kind for file in folder.glob(pattern)] for kind in WEIGHTS)
    return sorted({*there, *next((files for files in weights if files), [])})


def digests_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of a model, by name. Raises ModelChanged where one cannot be read."""
    found = {}
    for path in model_files(folder):
        try:
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ModelChanged("that are meant", f"{path.name} cannot be read ({error.strerror})") from None
    return found


def list_of(digests: Mapping[str, str]) -> str:
    """The list of a model, as `sha256sum` writes it."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def digest_of(digests: Mapping[str, str]) -> str:
    """What a model is known by in short: the SHA-256 of its list."""
    return hashlib.sha256(list_of(digests).encode()).hexdigest()


def read_list(path: Path) -> dict[str, str]:
    """The digests of a list. Raises ModelChanged where there is none that can be read."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError):
        raise ModelChanged("that are meant", f"their list, {path.name}, cannot be read") from None


def require_same(found: Mapping[str, str], meant: Mapping[str, str], which: str) -> None:
    """Raise ModelChanged, naming the files that differ, are missing or are too many."""
    differ = [f"{name} {_how(name, found, meant)}" for name in sorted({*found, *meant})
              if found.get(name) != meant.get(name)]
    if differ:
        raise ModelChanged(which, ", ".join(differ))


def _how(name: str, found: Mapping[str, str], meant: Mapping[str, str]) -> str:
    if name not in found:
        return "is missing"
    return "differs" if name in meant else "is not one of them"


def _require_pinned(found: Mapping[str, str], pinned: str, folder: Path) -> None:
    digest = digest_of(found)
    if digest == pinned:
        return
    which = f"that {PREFIX}MODEL_SHA256 names"
    if (folder / LIST).exists():
        meant = read_list(folder / LIST)
        if digest_of(meant) == pinned:
            require_same(found, meant, which)
    raise ModelChanged(which, f"their SHA-256 is {digest[:12]}…, not {pinned[:12]}…")


def _is_known(settings: Settings) -> bool:
    return bool(settings.model_sha256) or _is_built_in(settings.model)


def _is_built_in(model: str) -> bool:
    return Path(model).resolve() == Path(BUILT_IN_MODEL).resolve()
