"""Fixtures: the service in this process, Redis servers, brokers."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.broker import Broker
from app.main import create_app
from app.models import ModelFiles
from app.settings import Settings
from app.worker.sandbox.client import Sandbox
from compiler.spec import Spec, spec_from_json
from tests.app import fake_handlers
from tests.app.broker.brokers import OPENERS, SCENARIO_S_MAX, TIMES, Time
from tests.app.changed_model import changed_model
from tests.app.openai.chat_models import family_files
from tests.servers.cluster import Cluster, scripted_cluster
from tests.servers.processes import START_S_MAX, until
from tests.servers.redis_server import RedisServer, running_server
from tests.servers.small_model import small_model

TESTS = Path(__file__).resolve().parents[1]


def refuse_to_unpickle(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuses every pickle that names a class or function.

    The hook stays in the test process until it exits. Serving processes have a stricter hook in test_no_pickle.py.
    """
    if event == "pickle.find_class":
        raise RuntimeError(f"nothing is unpickled here: {arguments}")


sys.addaudithook(refuse_to_unpickle)


@cache
def functions_of(file: str) -> set[str]:
    """The names of the functions in a file under tests/."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def wait_until_ready(client: TestClient) -> None:
    until(lambda: client.get("/ready").is_success, "the service is ready", START_S_MAX)


def wait_for_compiler(client: TestClient) -> None:
    """Wait until the compile worker of a model-free service is ready."""
    reasons = ["no generate worker is alive"]
    until(lambda: client.get("/ready").json()["reasons"] == reasons, "the compile worker is ready", START_S_MAX)


@contextmanager
def service_client(
    ready: Callable[[TestClient], None] | None = wait_until_ready, **settings: Any
) -> Iterator[TestClient]:
    """Yields a client of an in-process service, after `ready` has returned. Its model is small unless one is set."""
    importlib.import_module("tests.servers.quick_start")  # not at the top: it imports PyTorch
    all_settings = Settings.of(**{"model": small_model(), **settings})
    with TestClient(create_app(all_settings), raise_server_exceptions=False) as client:
        if ready is not None:
            ready(client)
        yield client


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Threads for requests that last while a test does something else."""
    with ThreadPoolExecutor(32) as executor:
        yield executor


@pytest.fixture(autouse=True)
def forgetful_handlers() -> None:
    """Fake handlers do not remember earlier tests."""
    fake_handlers.reset()


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient]:
    """The whole service in this process, with the built-in model."""
    with service_client() as client:
        yield client


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModelFiles]:
    """The files of a small model of a family, by its name."""
    return cache(lambda name: family_files(tmp_path_factory.mktemp("family"), name))


@pytest.fixture(scope="session")
def agent_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with the model "deepseek", whose template has tools and thoughts."""
    folder = tmp_path_factory.mktemp("models") / "deepseek"
    folder.mkdir()
    family_files(folder, "deepseek-v3.1", context_tokens=1_024)
    with service_client(model=str(folder)) as client:
        yield client


@pytest.fixture(scope="session")
def short_sighted_client() -> Iterator[TestClient]:
    """A service without a model that shows only the smallest automata."""
    with service_client(wait_for_compiler, embedded_workers=("compile",), automaton_view_cells_max=10) as client:
        yield client


@pytest.fixture
def unspelling_client(tmp_path: Path) -> Iterator[TestClient]:
    """A service whose tokenizer cannot spell "é".

    It compiles, but it has no weights.
    """
    with changed_model(tmp_path) as (tokenizer, _):
        byte_a9 = "\u00a9"  # the byte A9, as byte-level BPE writes it
        vocabulary = tokenizer["model"]["vocab"]
        tokenizer["model"]["vocab"] = {
            piece: token_id for piece, token_id in vocabulary.items() if byte_a9 not in piece
        }
    with service_client(wait_for_compiler, model=str(tmp_path), embedded_workers=("compile",)) as client:
        yield client


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """The constraints that the sandbox compiled."""
    specs: list[Spec] = []
    original_run = Sandbox.run

    def recording_run(sandbox: Sandbox, request: bytes, is_cancelled: Callable[[], bool]) -> bytes:
        specs.append(spec_from_json(json.loads(request)["spec"]))
        return original_run(sandbox, request, is_cancelled)

    monkeypatch.setattr(Sandbox, "run", recording_run)
    return specs


@pytest.fixture(scope="session")
def shared_redis_server() -> Iterator[RedisServer]:
    """A real server for all tests, with keys of earlier ones."""
    with running_server() as server:
        yield server


@pytest.fixture
def redis_server(shared_redis_server: RedisServer) -> RedisServer:
    """A real server that holds nothing."""
    shared_redis_server.flush()
    return shared_redis_server


@pytest.fixture
def own_redis_server() -> Iterator[RedisServer]:
    """A real server that may be killed and started again."""
    with running_server() as server:
        yield server


@pytest.fixture(params=OPENERS)
def kind(request: pytest.FixtureRequest) -> str:
    """The backend of a broker, a store or counters."""
    return str(request.param)


@pytest.fixture
def time(kind: str) -> Time:
    """The clock of the component under test."""
    return TIMES[kind]()


@pytest.fixture
async def broker(kind: str, time: Time, redis_server: RedisServer) -> AsyncIterator[Broker]:
    """A fresh broker of each kind, of JOBS_MAX waiting jobs a queue."""
    broker = OPENERS[kind](redis_server.url, time)
    yield broker
    await broker.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Limit the time of a scenario with a server.

    Its fixtures are then closed after a timeout, too.
    """
    has_server = not {"redis_server", "own_redis_server"}.isdisjoint(pyfuncitem.fixturenames)
    if has_server and inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _within_limit(pyfuncitem.obj)


def _within_limit(scenario: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @wraps(scenario)
    async def with_timeout(**arguments: object) -> None:
        async with asyncio.timeout(SCENARIO_S_MAX):
            await scenario(**arguments)

    return with_timeout


@pytest.fixture(scope="session")
def scripted() -> Iterator[Cluster]:
    """A cluster of service processes with scripted generations, for fault tests."""
    with scripted_cluster() as cluster:
        yield cluster
