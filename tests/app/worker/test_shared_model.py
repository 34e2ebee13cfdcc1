"""A model that two processes share answers as one process does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import psutil
import pytest
from transformers import AutoModelForCausalLM

from app.errors import SettingsInvalid
from app.main import create_app
from app.settings import BUILT_IN, BUILT_IN_MODEL, Settings
from app.worker.handlers.engine import FREE_SHARE, memory_bytes
from tests.app.conftest import service_client
from tests.fake_models import HashModel
from tests.lora_adapters import write_adapter
from tests.servers.cluster import metric
from tests.servers.service_process import ServiceProcess, serving

pytestmark = pytest.mark.long
NATS = 1e-3  # that an answer's log-prob may be off: split sums round otherwise
REQUESTS: tuple[dict[str, Any], ...] = (
    {"constraint": {"keywords": ["dog", "ball"]}, "beams": 8, "n": 2},
    {"constraint": {"regex": "[A-Z][a-z]+( [a-z]+){2,6}\\."}, "beams": 4},
    {"constraint": {"ltlf": "F(dog) & G(!the)"}, "algorithm": "abs", "beams": 4},
    {"constraint": {"keywords": ["park"]}, "algorithm": "sample", "seed": 5, "n": 3},
    {"constraint": {"json_schema": {"type": "array", "items": {"enum": [1, 22]}, "maxItems": 3}}, "trace": True},
)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An adapter of the built-in model, as ABS_ADAPTERS names it."""
    model = AutoModelForCausalLM.from_pretrained(BUILT_IN_MODEL, dtype="float32")
    return f"poet={write_adapter(tmp_path_factory.mktemp('adapters') / 'poet', model, size=0.05)}"


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory, adapter: str) -> Iterator[ServiceProcess]:
    """A service whose model two processes share."""
    folder = tmp_path_factory.mktemp("group")
    with serving(folder, tensor_parallel=2, adapters=adapter, OMP_NUM_THREADS=1) as process:
        process.wait_until_ready()
        yield process


def bodies_of(model: str) -> list[dict[str, Any]]:
    """The requests to a model."""
    return [{"prompt": "sentence:", "max_tokens": 24, "model": model, **request} for request in REQUESTS]


def answers(url: str, *models: str) -> list[dict[str, Any]]:
    """The answers to all requests to all models at once."""
    with httpx2.Client(base_url=url, timeout=120, trust_env=False, verify=False) as http:
        bodies = [body for model in models or ("captions",) for body in bodies_of(model)]
        with ThreadPoolExecutor(len(bodies)) as callers:
            responses = list(callers.map(lambda body: http.post("/generate", json=body), bodies))
    assert [response.status_code for response in responses] == [200] * len(bodies), responses[0].text
    return [response.json() for response in responses]


def assert_alike(answer: dict[str, Any], other: dict[str, Any]) -> None:
    assert [each["text"] for each in answer["choices"]] == [each["text"] for each in other["choices"]]
    for choice, other_choice in zip(answer["choices"], other["choices"], strict=True):
        assert choice["log_prob"] == pytest.approx(other_choice["log_prob"], abs=NATS)


def test_two_processes_answer_like_one(shared_service: ServiceProcess, running_service: ServiceProcess) -> None:
    for shared, single in zip(answers(shared_service.url), answers(running_service.url), strict=True):
        assert_alike(shared, single)


def test_two_processes_apply_an_adapter_like_one(shared_service: ServiceProcess, adapter: str) -> None:
    shared = answers(shared_service.url, "captions", "poet")
    adapted = shared[len(REQUESTS) :]
    with service_client(adapters=(adapter,)) as client:
        for answer, body in zip(adapted, bodies_of("poet"), strict=True):
            assert_alike(answer, client.post("/generate", json=body).json())
    assert all(one["choices"] != other["choices"] for one, other in zip(shared, adapted, strict=False))


def test_a_group_is_shown_by_its_service(shared_service: ServiceProcess, running_service: ServiceProcess) -> None:
    ready = {"status": "ready", "groups": {"captions": {"size": 2, "alive": 2}}}
    for service, size, body in ((shared_service, 2, ready), (running_service, 1, {"status": "ready"})):
        assert httpx2.get(f"{service.url}/ready", trust_env=False, verify=False).json() == body
        for name in ("abs_tensor_parallel_size", "abs_tensor_parallel_ranks_alive"):
            assert metric(service.url, name, model="captions") == size


def test_several_models_in_one_process_cannot_be_shared() -> None:
    with pytest.raises(SettingsInvalid, match=r"ABS_TENSOR_PARALLEL: .* names 2"):
        create_app(Settings.of(model=tuple(BUILT_IN), tensor_parallel=2))
    assert create_app(Settings.of(model=tuple(BUILT_IN), tensor_parallel=2, embedded_workers=("compile",)))


def test_processes_on_one_machine_divide_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.worker.handlers.engine.free_bytes", lambda device: 6 * FREE_SHARE)
    model = HashModel(7, (0,))
    assert memory_bytes(model, Settings.of(tensor_parallel=2)) == 3
    assert memory_bytes(model, Settings.of(tensor_parallel=2, generation_memory_bytes=9)) == 9


def test_a_stopped_service_ends_its_group(shared_service: ServiceProcess) -> None:
    descendants = psutil.Process(shared_service.process.pid).children(recursive=True)
    (follower,) = (each for each in descendants if "decoding.model.follower" in each.cmdline())
    follower.terminate()  # a signal to all processes of a service does not end the model before its requests
    answers(shared_service.url)
    shared_service.process.terminate()
    assert shared_service.process.wait(timeout=60) == 0, shared_service.log
    assert not psutil.wait_procs([follower], timeout=30)[1] and "Traceback" not in shared_service.log
