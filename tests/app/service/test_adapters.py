"""LoRA adapters in the service: selected by name, equal to merged models."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from transformers import AutoModelForCausalLM, PreTrainedModel

from app.errors import SettingsInvalid
from app.models import model_sources, only, queues_of, served_sources
from app.settings import Settings
from tests.app.conftest import service_client
from tests.app.event_stream import events
from tests.lora_adapters import WEIGHTS, merge, write_adapter
from tests.servers.processes import until
from tests.servers.small_model import small_model
from tests.tables import table

NATS = 1e-3
ADAPTERS = ("poet", "clerk")
REQUEST: dict[str, Any] = {
    "prompt": "concepts: dog, boat\nsentence:", "constraint": {"keywords": ["dog", "boat"]}, "max_tokens": 20,
    "beams": 4, "n": 2, "trace": True,
}  # fmt: skip
SAMPLE = {"algorithm": "sample", "seed": 7, "n": 1, "beams": None}


def _bare() -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(small_model(), dtype="float32")
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two adapters of the small model, alone and merged into it."""
    folder = tmp_path_factory.mktemp("adapters")
    for number, name in enumerate(ADAPTERS):
        model = _bare()
        write_adapter(folder / name, model, seed=number, size=0.05)
        merge(model, folder / name)
        merged = folder / f"merged-{name}"
        shutil.copytree(small_model(), merged, ignore=shutil.ignore_patterns("*.safetensors"))
        model.save_pretrained(merged)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    """A service with both adapters."""
    with service_client(adapters=tuple(f"{name}={folder / name}" for name in ADAPTERS)) as client:
        yield client


def _generated(client: TestClient, model: str | None, fields: Mapping[str, Any]) -> Any:
    sent = {name: value for name, value in (REQUEST | dict(fields) | {"model": model}).items() if value is not None}
    response = client.post("/generate", json=sent)
    assert response.status_code == 200, response.json()
    return response.json()


def _texts(answer: Any) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


def test_an_adapter_answers_as_the_merged_model(client: TestClient, folder: Path) -> None:
    with service_client(model=tuple(str(folder / f"merged-{name}") for name in ADAPTERS)) as merged:
        for name in ADAPTERS:
            for fields in ({}, SAMPLE):
                answer, expected = _generated(client, name, fields), _generated(merged, f"merged-{name}", fields)
                assert answer["model"] == name and _texts(answer) == _texts(expected)
                assert _texts(answer) != _texts(_generated(client, None, fields))
                for choice, other in zip(answer["choices"], expected["choices"], strict=True):
                    assert choice["satisfied"] and choice["log_prob"] == pytest.approx(other["log_prob"], abs=NATS)


def test_adapters_that_answer_at_once_do_not_disturb_each_other(client: TestClient) -> None:
    models = (None, *ADAPTERS)
    alone = {model: _generated(client, model, {})["choices"] for model in models}
    with ThreadPoolExecutor(6) as threads:
        chosen = [models[number % 3] for number in range(6)]
        answers = list(threads.map(lambda model: _generated(client, model, {}), chosen))
    for model, answer in zip(chosen, answers, strict=True):
        assert answer["choices"] == alone[model]  # to the last bit, after prompts that were found in the cache


def test_adapters_are_listed_with_the_model_that_they_change(client: TestClient) -> None:
    cards = client.get("/v1/models").json()["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [
        ("captions", None), ("poet", "captions"), ("clerk", "captions")
    ]  # fmt: skip
    assert client.get("/v1/models/poet").json() == cards[1]
    assert "adapters" not in str(cards)  # no path


def test_constraints_are_compiled_once_for_a_model_and_its_adapters(client: TestClient) -> None:
    compiled = [
        client.post("/compile", json={"constraint": {"regex": "a poem"}, "model": model}).json()
        for model in ("captions", *ADAPTERS)
    ]
    assert len({each["automaton"] for each in compiled}) == 1
    assert [each["cached"] for each in compiled] == [False, True, True]


def test_a_job_keeps_the_name_of_its_adapter(client: TestClient) -> None:
    sent = REQUEST | {"model": "poet"}
    accepted = client.post("/generate", json=sent, headers={"prefer": "respond-async"}).json()
    *_, last = events(iter(client.get(f"/jobs/{accepted['id']}/events").text.splitlines()))
    assert (last.name, last.data["model"]) == ("done", "poet")
    assert client.get(f"/jobs/{accepted['id']}").json()["result"]["model"] == "poet"


def test_prompts_and_completions_are_scored_by_the_adapter(client: TestClient) -> None:
    sent = {"prompt": "A dog runs", "max_tokens": 4, "echo": True, "logprobs": 1}
    scored = [client.post("/v1/completions", json=sent | {"model": model}).json() for model in ("captions", "poet")]
    first, second = (each["choices"][0]["logprobs"]["token_logprobs"] for each in scored)
    assert [each["model"] for each in scored] == ["captions", "poet"]
    assert all(abs(one - other) > NATS for one, other in zip(first[1:3], second[1:3], strict=True))


@pytest.mark.parametrize("model", table("adapters")["unknown"])
def test_a_request_names_no_adapter_but_the_configured_ones(client: TestClient, folder: Path, model: str) -> None:
    name = model.replace("$FOLDER", str(folder / "poet"))
    for path in ("/generate", "/v1/completions"):
        refused = client.post(path, json={"model": name, "prompt": "a", "constraint": {"regex": "a"}})
        assert refused.status_code == 404 and "unknown_model" in refused.text
        assert str(folder) not in refused.text


def test_a_service_with_a_bad_adapter_does_not_become_ready(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "poet", tmp_path / "poet")
    (tmp_path / "poet" / WEIGHTS).write_bytes(b"\x80\x05not safetensors")
    with service_client(ready=None, adapters=(f"poet={tmp_path / 'poet'}",)) as client:
        until(lambda: "cannot be loaded; see the log" in client.get("/ready").text, "the worker says so")
        assert client.get("/ready").status_code == 503


@pytest.mark.parametrize(("text", "settings", "reason"), [
    ("poet", {}, "name=folder"), ("po et=$", {}, "name=folder"), ("poet=$,poet=$", {}, "names that all differ"),
    ("captions=$", {}, "rename the adapter"), ("poet=$/nowhere", {}, "has no adapter_config"),
])  # fmt: skip
def test_bad_settings_are_refused_at_the_start(folder: Path, text: str, settings: Any, reason: str) -> None:
    with pytest.raises(SettingsInvalid, match=reason):
        served_sources(Settings.of(adapters=text.replace("$", str(folder / "poet")), **settings))


def test_adapters_belong_to_the_first_model(folder: Path) -> None:
    settings = Settings.of(model=("captions", "stories"), adapters=f"poet={folder / 'poet'}")
    sources = served_sources(settings)
    assert [(source.name, source.parent) for source in sources] == [
        ("captions", ""), ("stories", ""), ("poet", "captions")
    ]  # fmt: skip
    assert sources[2].queue == sources[0].queue
    assert queues_of(settings, ("generate",)) == ("generate", "generate/stories")
    first, second = (only(source, settings) for source in model_sources(settings))
    assert first.inference.adapters and not second.inference.adapters
