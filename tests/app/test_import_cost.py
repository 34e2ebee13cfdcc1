"""What it costs to import the API and the client."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

TRIES = 8  # the least of them counts: on a machine that is busy the same work may take twice the time
NEVER = {"torch", "transformers", "tokenizers", "sympy", "decoding", "ltlf2dfa", "lemminflect", "FAdo"}
LATER = {"redis", "uvicorn", "typer", "rich", "opentelemetry.sdk", "httpx2", "pydantic_settings"}
MEASURE = """
import json, sys, time
{statement}
print(json.dumps([time.process_time(), sorted(sys.modules)]))
"""


def measured(statement: str) -> tuple[float, set[str]]:
    """Processor seconds of a fresh process, and its loaded modules."""
    code = MEASURE.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    cpu_s, modules = json.loads(done.stdout)
    return cpu_s, set(modules)


@pytest.mark.parametrize(
    ("statement", "never", "cpu_s_max"),
    [
        ("from app.main import create_app", NEVER | LATER, 1.25),
        ("import abs_client", {"app", "compiler", "decoding", "torch", "numpy", "pydantic", "fastapi"}, 0.5),
    ],
)
def test_an_import_is_fast_and_loads_only_what_it_needs(statement: str, never: set[str], cpu_s_max: float) -> None:
    spent = []
    for _ in range(TRIES):
        cpu_s, modules = measured(statement)
        assert not modules & never, modules & never
        spent.append(cpu_s)
        if cpu_s < cpu_s_max:
            return
    pytest.fail(f"{statement} took {min(spent):.2f} s of processor time at least")


def test_an_api_with_redis_and_keys_loads_no_model() -> None:
    _, modules = measured(
        "import app.main, app.http_server, app.wiring, app.auth.redis_counters\n"
        "from app.settings import Settings\n"
        "settings = Settings.of(broker='unix:///nowhere', store='unix:///nowhere', secret=b'0' * 16)\n"
        "app.wiring.open_broker(settings), app.wiring.open_store(settings), app.wiring.open_limiter(settings)"
    )
    assert {"redis", "uvicorn"} <= modules
    assert not modules & NEVER, modules & NEVER
