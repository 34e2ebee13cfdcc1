"""Samples of GET /metrics by name and labels."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

Key = tuple[str, frozenset[tuple[str, str]]]


def ask(port: int, path: str) -> tuple[int, str]:
    """Status and body of a GET request to a local port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=90) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


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
        """The sum of all samples with this name and these labels."""
        label_items = set(labels.items())
        return sum(
            value
            for (sample_name, sample_labels), value in self._values.items()
            if sample_name == name and label_items <= sample_labels
        )

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(sample_labels) for sample_name, sample_labels in self._values if sample_name == name]


def scrape(client: TestClient) -> Samples:
    answer = client.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    return Samples(answer.text)


def increase(before: Samples, after: Samples, name: str, **labels: str) -> float:
    return after(name, **labels) - before(name, **labels)
