"""The services of all models, among which requests select by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.broker import Broker
from app.errors import UnknownModel
from app.models import ScorerFiles, open_model_files, served_sources
from app.service.job_client import JobClient
from app.service.service import Service
from app.settings import Settings
from app.store import Store


class ServedModels:
    """The service of each model and adapter. The first is the default. They share the job client."""

    def __init__(
        self, settings: Settings, broker: Broker, store: Store, scorers: Mapping[str, ScorerFiles] | None = None
    ) -> None:
        """Reads the tokenizers. Raises SettingsInvalid for a model that cannot be read."""
        self.jobs = JobClient(settings, broker)
        self._services = {
            source.name: Service(
                settings, broker, store, open_model_files(source.location), scorers=scorers, source=source,
                jobs=self.jobs,
            )
            for source in served_sources(settings)
        }

    @property
    def default(self) -> Service:
        """The service of requests that name no model."""
        return next(iter(self))

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services.values())

    def of(self, model: str | None) -> Service:
        """The service of a model. Raises UnknownModel."""
        if model is None:
            return self.default
        try:
            return self._services[model]
        except KeyError:
            raise UnknownModel(tuple(self._services)) from None

    async def of_automaton(self, automaton: str) -> Service:
        """The service of the model that a constraint is stored for. The default without any."""
        for service in self:
            if await service.constraints.has(automaton):
                return service
        return self.default
