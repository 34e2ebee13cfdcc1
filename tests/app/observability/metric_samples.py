"""What GET /metrics says, for the tests: samples by name and labels, and how they moved."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

Key = tuple[str, frozenset[tuple[str, str]]]


class Samples:
    """All samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self._values: Mapping[Key, float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name that have these labels, among others."""
        wanted = set(labels.items())
        return sum(value for (own, has), value in self._values.items() if own == name and wanted <= has)

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(has) for own, has in self._values if own == name]


def scrape(client: TestClient) -> Samples:
    answer = client.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    return Samples(answer.text)
