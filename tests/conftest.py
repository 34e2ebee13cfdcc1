"""Fixtures and hooks of all tests: shared data, built-in model, running service."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.environment import let_idle_threads_sleep
from tests.servers.cluster import FULL
from tests.servers.forkserver import PREFORKED, PREFORKED_S_MAX
from tests.servers.preforked import PreforkedProcess
from tests.servers.processes import until
from tests.servers.service_process import ServiceProcess, serving
from tests.skips import fail_unlisted
from tests.tools.processor_time import ProcessorTimes

let_idle_threads_sleep()  # here, before any test imports PyTorch
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # seconds of grammars for formats of jsonschema that we lack
ROOT = Path(__file__).resolve().parents[1]
gc.disable()  # until the tests are collected: it would take a quarter of their imports' time

LONG = (  # files, the longest first: one that began last would be waited for by those that have nothing left
    "app/openai/test_clients.py", "docs/test_blocks.py", "app/local/test_up.py", "app/cli/test_commands.py",
    "app/broker/test_redis_broker.py", "app/api/test_grammars.py", "client/test_service.py", "deploy/test_compose.py",
    "app/faults/test_workers.py", "long/test_abuse.py", "app/redis/test_sentinel.py", "app/playground/test_agent.py",
    "app/playground/test_shell_runs.py", "app/playground/test_shell.py", "app/api/test_large_combinations.py",
    "app/playground/test_stage.py", "app/test_no_pickle.py", "app/service/test_job_processes.py",
    "app/broker/test_contract_admission.py", "app/faults/test_clocks.py", "app/openai/test_tool_formats.py",
    "app/api/test_ready.py", "app/playground/test_views.py", "app/faults/test_api.py", "app/playground/test_looks.py",
    "app/faults/test_chaos.py", "long/test_fuzz.py", "app/faults/test_model.py", "app/worker/test_bombs.py",
    "compiler/json_schema/test_sizes.py", "compiler/grammars/test_suites.py", "decoding/test_library.py",
    "decoding/model/test_huggingface.py", "decoding/model/test_quantized.py", "decoding/test_products.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProcessorTimes())
    testers = getattr(config.option, "numprocesses", None)
    if testers and not hasattr(config, "workerinput") and find_spec("torch"):  # `make pythons` has none
        config.add_cleanup(PreforkedProcess(testers).end)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The first test process collects before the others.

    Each file is then compiled once.
    """
    folder, name = os.environ.get(PREFORKED), os.environ.get("PYTEST_XDIST_WORKER")
    collected = Path(folder or "", "collected")
    if folder and name not in (None, "gw0"):
        until(collected.exists, "the first test process has collected", PREFORKED_S_MAX)
    try:
        return (yield)
    finally:
        if folder and name == "gw0":
            collected.touch()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not FULL:
        _keep_short_form(config, items)
    order = {f"tests/{name}": index for index, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(LONG)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()  # the collector leaves modules and collected tests alone
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_unlisted(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_unlisted(report)
    return report


def _keep_short_form(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects tests marked `long`, and cases of tests marked `sample`."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    dropped = {item for item in items if item.get_closest_marker("long")}
    for of_test in cases.values():
        marker = of_test[0].get_closest_marker("sample")
        assert marker is not None
        count = min(marker.args[0], len(of_test))
        dropped.update(set(of_test) - {of_test[index * len(of_test) // count] for index in range(count)})
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared tokenizers, data sets and models. Tests that need it are skipped if it is missing."""
    folder = Path(os.environ.get("ABS_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: set ABS_SHARED to the one with tokenizers, data and models")
    return folder


@pytest.fixture(scope="session")
def captions_dir() -> Path:
    """The built-in model."""
    return ROOT / "app" / "models" / "captions"


@pytest.fixture(scope="session")
def running_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A running service with the built-in model, shared by read-only tests. Starting one takes seconds."""
    with serving(tmp_path_factory.mktemp("service"), log_level="warning") as process:
        process.wait_until_ready()
        yield process
