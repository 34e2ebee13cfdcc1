"""What it costs to import the API, and what it never imports."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CPU_S_MAX = 1.0
TRIES = 8  # the least of them counts: on a machine that is busy the same work may take twice the time
NEVER = {"torch", "transformers", "tokenizers", "sympy", "decoding", "ltlf2dfa", "lemminflect", "FAdo"}
LATER = {"coredis", "streaq", "uvicorn", "typer", "rich", "supervisor", "opentelemetry.sdk", "httpx2"}
MEASURE = """
import json, sys, time
{statement}
print(json.dumps([time.process_time(), sorted(sys.modules)]))
"""


def measured(statement: str) -> tuple[float, set[str]]:
    """Processor time of a fresh process in s, with the interpreter's start, and its loaded modules."""
    code = MEASURE.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    cpu_s, modules = json.loads(done.stdout)
    return cpu_s, set(modules)


def test_importing_the_api_is_fast_and_loads_no_model() -> None:
    spent = []
    for _ in range(TRIES):
        cpu_s, modules = measured("from app.main import create_app")
        assert not modules & (NEVER | LATER), modules & (NEVER | LATER)
        spent.append(cpu_s)
        if cpu_s < CPU_S_MAX:
            return
    pytest.fail(f"importing app.main took {min(spent):.2f} s of processor time at least")


def test_an_api_with_redis_and_keys_loads_no_model() -> None:
    _, modules = measured(
        "import app.main, app.http_server, app.wiring, app.auth.redis_counters\n"
        "from app.settings import Settings\n"
        "settings = Settings(broker='unix:///nowhere', store='unix:///nowhere', secret=b'0' * 16)\n"
        "app.wiring.open_broker(settings), app.wiring.open_store(settings), app.wiring.open_limiter(settings)"
    )
    assert {"coredis", "uvicorn"} <= modules
    assert not modules & NEVER, modules & NEVER
