"""The models of ABS_MODEL, their names in the API and their queues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from app.errors import SettingsInvalid
from app.settings import PREFIX, QUEUES, Settings


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model of ABS_MODEL.

    name      its name in the API: a folder's last name, or the whole name of a model of a hub
    location  its folder, or its name on a hub
    sha256    the SHA-256 that its files must have; empty for any
    queue     the queue of its generations
    """

    name: str
    location: str
    sha256: str
    queue: str


def model_sources(settings: Settings) -> tuple[ModelSource, ...]:
    """The models, the default one first. Raises SettingsInvalid for two of one name."""
    locations = settings.inference.model
    names = [_name(location) for location in locations]
    for name in names:
        if names.count(name) > 1:
            raise SettingsInvalid(f"{PREFIX}MODEL names two models {name!r}, and requests could not select one of them")
    digests = settings.inference.model_sha256 or ("",) * len(locations)
    # The first queue has the plain name, which operators know from services with one model.
    queues = ["generate", *(f"generate/{name}" for name in names[1:])]
    return tuple(map(ModelSource, names, locations, digests, queues))


def queues_of(settings: Settings, kinds: Iterable[str] = QUEUES) -> tuple[str, ...]:
    """The queues of these kinds. Each model has its own queue of generations."""
    generations = [source.queue for source in model_sources(settings)]
    return tuple(queue for kind in kinds for queue in (generations if kind == "generate" else (kind,)))


def only(source: ModelSource, settings: Settings) -> Settings:
    """The settings with this model alone."""
    return settings.changed(model=(source.location,), model_sha256=(source.sha256,) if source.sha256 else ())


def _name(location: str) -> str:
    folder = Path(location)
    return folder.resolve().name if folder.is_dir() else location
