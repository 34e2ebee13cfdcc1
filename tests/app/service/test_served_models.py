"""Two models in one service: names, queues, vocabularies, jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer
from starlette.testclient import TestClient

from app.cli.worker_process import worker_queues
from app.errors import SettingsInvalid
from app.models import model_sources, open_model_files, queues_of
from app.settings import BUILT_IN, Settings
from tests.app import fake_handlers
from tests.app.conftest import service_client
from tests.app.event_stream import events
from tests.app.observability.metric_samples import increase, scrape
from tests.servers.forkserver import start_process
from tests.servers.processes import until
from tests.servers.redis_server import RedisServer
from tests.servers.service_process import serving
from tests.servers.small_model import small_model

NAMES = ("captions", "stories")
MODELS = (small_model(), "stories")
PROMPT, CONSTRAINT = "One day, a", {"keywords": ["dog", "boat", "moon"], "ordered": True}
REQUEST: dict[str, Any] = {"prompt": PROMPT, "constraint": CONSTRAINT, "max_tokens": 24}
TEXTS = {
    "captions": "dog on the top of a small boat at the moon sky sky sky sky sky sky sky sky sky sky sky sky",
    "stories": "little dog named Max went to the boat. He saw a big moon.",
}
JOBS = "abs_queue_wait_seconds_count"  # that left a queue
ASYNC = {"prefer": "respond-async"}


@pytest.fixture(scope="module")
def both() -> Iterator[TestClient]:
    """A service with two models."""
    with service_client(model=MODELS) as client:
        yield client


def generated(client: TestClient, model: str, **fields: Any) -> Any:
    response = client.post("/generate", json=REQUEST | {"model": model} | fields)
    assert response.status_code == 200, response.json()
    return response.json()


def compiled(client: TestClient, model: str) -> Any:
    return client.post("/compile", json={"constraint": CONSTRAINT, "model": model}).json()


def test_a_request_selects_its_model(both: TestClient) -> None:
    for model in NAMES:
        answer = generated(both, model)
        assert answer["model"] == model and answer["choices"][0]["satisfied"]
        completion = both.post("/v1/completions", json={"model": model, "prompt": PROMPT, "max_tokens": 8}).json()
        assert completion["model"] == model
    assert both.post("/generate", json=REQUEST).json()["model"] == NAMES[0]  # the default


def test_models_that_answer_at_once_do_not_disturb_each_other(both: TestClient) -> None:
    alone = {model: generated(both, model)["choices"][0]["text"] for model in NAMES}
    assert alone == TEXTS
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: generated(both, NAMES[number % 2]), range(8)))
    assert all(answer["choices"][0]["text"] == alone[answer["model"]] for answer in answers)


def test_both_models_are_listed_and_ready(both: TestClient) -> None:
    listed = both.get("/v1/models").json()
    cards = listed["data"]
    assert listed["object"] == "list" and [card["id"] for card in cards] == list(NAMES)
    for card in cards:
        files = open_model_files(BUILT_IN[card["id"]])
        assert (card["vocabulary"], card["context_tokens"]) == (files.vocabulary.size, files.context_tokens)
        assert both.get(f"/v1/models/{card['id']}").json() == card
    assert both.get("/ready").json() == {"status": "ready"}
    assert {labels["model"] for labels in scrape(both).labels("abs_model_info")} >= set(NAMES)


def test_each_model_has_its_queue(both: TestClient) -> None:
    queues = {"captions": "generate", "stories": "generate/stories"}
    for model in NAMES:
        before = scrape(both)
        generated(both, model)
        after = scrape(both)
        counts = {name: increase(before, after, JOBS, queue=queue) for name, queue in queues.items()}
        assert counts == {name: float(name == model) for name in NAMES}
        assert {labels["queue"] for labels in after.labels("abs_queue_requests")} >= {"compile", *queues.values()}


def test_a_full_queue_of_one_model_leaves_the_other_free(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_handlers.install(monkeypatch, compile="open_compiling", generate="open_blocking")
    with service_client(model=MODELS, queue_jobs_max=1) as client:

        def status(model: str) -> int:
            return client.post("/generate", json=REQUEST | {"model": model}, headers=ASYNC).status_code

        statuses = {status("captions") for _ in range(fake_handlers.SLOTS + 4)}
        assert statuses == {202, 429}
        assert status("stories") == 202


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", REQUEST), ("/compile", {"constraint": CONSTRAINT}), ("/tokenize", {"prompt": "a"}),
        ("/v1/completions", {"prompt": "a"}), ("/v1/messages", {"max_tokens": 4, "messages": [
            {"role": "user", "content": "a"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)  # fmt: skip
def test_an_unknown_model_is_refused_with_both_names(both: TestClient, path: str, body: dict[str, Any]) -> None:
    response = both.post(path, json={"model": "story", **body})
    assert response.status_code == 404
    assert all(f"'{name}'" in response.text for name in NAMES)


def test_the_automata_of_two_vocabularies_are_kept_apart(both: TestClient) -> None:
    captions, stories = (compiled(both, model) for model in NAMES)
    assert captions["automaton"] != stories["automaton"]
    assert captions["min_tokens"] != stories["min_tokens"]
    hashes = {"captions": captions["automaton"], "stories": stories["automaton"]}
    for _ in range(2):  # a refusal drops nothing of the other model
        for model, other in (NAMES, NAMES[::-1]):
            by_hash = {"automaton": hashes[model], "constraint": None}
            assert generated(both, model, **by_hash)["choices"][0]["text"] == TEXTS[model]
            refused = both.post("/generate", json=REQUEST | by_hash | {"model": other})
            assert (refused.status_code, refused.json()["code"]) == (404, "unknown_automaton")
            assert f"'{other}'" in refused.json()["detail"]
    for model, compilation in zip(NAMES, (captions, stories), strict=True):
        picture = both.get(f"/automata/{hashes[model]}").json()
        assert picture["explanation"] == compilation["explanation"] is not None
        assert min(state["distance"] for state in picture["states"] if state["distance"]) > 0
        assert both.get(f"/automata/{hashes[model]}.dot").status_code == 200


def test_look_ups_under_two_secrets_keep_the_other_automata() -> None:
    secrets = b"n" * 32 + b"," + b"o" * 32
    with service_client(None, model=MODELS, secret=secrets, embedded_workers=("compile",)) as client:
        automaton = until(lambda: compiled(client, "stories").get("automaton"), "the compile worker is ready")
        assert [client.get(f"/automata/{automaton}").status_code for _ in range(2)] == [200, 200]


def test_a_job_keeps_the_name_of_its_model(both: TestClient) -> None:
    for model in NAMES:
        accepted = both.post("/generate", json=REQUEST | {"model": model}, headers=ASYNC).json()
        *_, last = events(iter(both.get(f"/jobs/{accepted['id']}/events").text.splitlines()))
        assert (last.name, last.data["model"]) == ("done", model)
        assert both.get(f"/jobs/{accepted['id']}").json()["result"]["model"] == model


def test_text_is_tokenized_by_the_selected_model(both: TestClient) -> None:
    for model in NAMES:
        ids = both.post("/tokenize", json={"model": model, "prompt": "Once upon a time"}).json()
        assert ids["max_model_len"] == open_model_files(BUILT_IN[model]).context_tokens
        text = both.post("/detokenize", json={"model": model, "tokens": ids["tokens"]}).json()["prompt"]
        assert text.endswith("Once upon a time")


def test_each_model_may_have_its_worker_process(tmp_path: Path, redis_server: RedisServer) -> None:
    variables = {
        "ABS_MODEL": ",".join(MODELS), "ABS_BROKER": redis_server.url, "ABS_STORE": redis_server.url,
        "ABS_SECRET": "s" * 32, "ABS_EMBEDDED_WORKERS": "",
    }  # fmt: skip
    workers = []
    for queue in ("compile", "generate/captions", "generate/stories"):
        log, output = (tmp_path / f"{queue.replace('/', '-')}.{kind}" for kind in ("log", "out"))
        workers.append(start_process(["app.main", "worker", queue], os.environ | variables, log, output))
    try:
        with serving(tmp_path, **variables) as api:
            api.wait_until_ready()
            for model in NAMES:
                answer = httpx2.post(f"{api.url}/generate", json=REQUEST | {"model": model}, timeout=60).json()
                assert (answer["model"], answer["choices"][0]["text"]) == (model, TEXTS[model])
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(timeout=60)


def test_a_worker_serves_one_queue_or_those_of_all_models() -> None:
    settings = Settings.of(model=NAMES)
    assert worker_queues("generate", settings) == ("generate", "generate/stories")
    assert worker_queues("generate/captions", settings) == ("generate",)
    assert worker_queues("compile", settings) == ("compile",)
    with pytest.raises(typer.BadParameter, match="there are compile, generate, generate/captions, generate/stories"):
        worker_queues("generate/story", settings)


def test_sources_have_names_queues_and_digests() -> None:
    digests = ("a" * 64, "b" * 64)
    settings = Settings.of(model="captions, some/model", model_sha256=digests)
    sources = model_sources(settings)
    assert [source.name for source in sources] == ["captions", "some/model"]
    assert [source.sha256 for source in sources] == list(digests)
    assert queues_of(settings) == ("compile", "generate", "generate/some/model")
    with pytest.raises(SettingsInvalid, match="two models 'captions'"):
        model_sources(Settings.of(model=f"captions,{BUILT_IN['captions']}"))
    with pytest.raises(SettingsInvalid, match="one SHA-256 for each model"):
        Settings.of(model=NAMES, model_sha256=digests[:1])
