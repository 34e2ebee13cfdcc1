"""The models of ABS_MODEL, with adapters of ABS_ADAPTERS, and their queues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from app.errors import SettingsInvalid
from app.models.files import named_folders
from app.settings import PREFIX, QUEUES, Settings

_ADAPTER_FILE = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model of ABS_MODEL, or such a model with an adapter.

    name      its name in the API: a folder's last name, the whole name of a model of a hub, or the adapter's
    location  its folder, or its name on a hub
    sha256    the SHA-256 that its files must have; empty for any
    queue     the queue of its generations
    parent    the name of the model that an adapter changes; empty for a model
    """

    name: str
    location: str
    sha256: str
    queue: str
    _: KW_ONLY
    parent: str = ""


def model_sources(settings: Settings) -> tuple[ModelSource, ...]:
    """The models without adapters, the default one first. Raises SettingsInvalid for two of one name."""
    locations = settings.inference.model
    names = [_name(location) for location in locations]
    for name in names:
        if names.count(name) > 1:
            raise SettingsInvalid(f"{PREFIX}MODEL names two models {name!r}, and requests could not select one of them")
    digests = settings.inference.model_sha256 or ("",) * len(locations)
    # The first queue has the plain name, which operators know from services with one model.
    queues = ["generate", *(f"generate/{name}" for name in names[1:])]
    return tuple(map(ModelSource, names, locations, digests, queues))


def served_sources(settings: Settings) -> tuple[ModelSource, ...]:
    """All models, then the first one with each adapter.

    Raises SettingsInvalid for two of one name.
    """
    models, adapters = model_sources(settings), adapter_folders(settings)
    if taken := adapters.keys() & {source.name for source in models}:
        raise SettingsInvalid(f"{PREFIX}ADAPTERS names an adapter as a model: {min(taken)!r}; rename the adapter")
    first = models[0]
    return (*models, *(replace(first, name=name, parent=first.name) for name in adapters))


def adapter_folders(settings: Settings) -> dict[str, str]:
    """The folders of the adapters by name. Raises SettingsInvalid for other text, or a folder without an adapter."""
    folders = named_folders(settings.inference.adapters, f"{PREFIX}ADAPTERS")
    for folder in folders.values():
        if not (folder / _ADAPTER_FILE).is_file():
            raise SettingsInvalid(f"{PREFIX}ADAPTERS: {folder} has no {_ADAPTER_FILE}; name the folder of an adapter")
    return {name: str(folder) for name, folder in folders.items()}


def queues_of(settings: Settings, kinds: Iterable[str] = QUEUES) -> tuple[str, ...]:
    """The queues of these kinds. Each model has its own queue of generations."""
    generations = [source.queue for source in model_sources(settings)]
    return tuple(queue for kind in kinds for queue in (generations if kind == "generate" else (kind,)))


def only(source: ModelSource, settings: Settings) -> Settings:
    """The settings with this model alone. The first one has the adapters."""
    adapters = settings.inference.adapters if source.location == settings.inference.model[0] else ()
    digests = (source.sha256,) if source.sha256 else ()
    return settings.changed(model=(source.location,), model_sha256=digests, adapters=adapters)


def _name(location: str) -> str:
    folder = Path(location)
    return folder.resolve().name if folder.is_dir() else location
