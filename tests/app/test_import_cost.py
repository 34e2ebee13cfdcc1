"""What it costs to import the API and the client."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

NEVER = {"torch", "transformers", "tokenizers", "sympy", "decoding", "ltlf2dfa", "lemminflect", "FAdo"}
LATER = {"redis", "uvicorn", "typer", "rich", "opentelemetry.sdk", "httpx2", "pydantic_settings"}
MEASURE = """
import json, sys
{statement}
print(json.dumps(sorted(sys.modules)))
"""


def loaded(statement: str) -> set[str]:
    """The modules that a fresh process has loaded after a statement."""
    code = MEASURE.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("statement", "never", "modules_max"),
    [
        ("from app.main import create_app", NEVER | LATER, 1_000),
        ("import abs_client", {"app", "compiler", "decoding", "torch", "numpy", "pydantic", "fastapi"}, 350),
    ],
)
def test_an_import_loads_only_what_it_needs(statement: str, never: set[str], modules_max: int) -> None:
    modules = loaded(statement)
    assert not modules & never, modules & never
    assert len(modules) < modules_max, sorted(modules)


def test_an_api_with_redis_and_keys_loads_no_model() -> None:
    modules = loaded(
        "import app.main, app.http_server, app.wiring, app.auth.redis_counters\n"
        "from app.settings import Settings\n"
        "settings = Settings.of(broker='unix:///nowhere', store='unix:///nowhere', secret=b'0' * 16)\n"
        "app.wiring.open_broker(settings), app.wiring.open_store(settings), app.wiring.open_limiter(settings)"
    )
    assert {"redis", "uvicorn"} <= modules
    assert not modules & NEVER, modules & NEVER
