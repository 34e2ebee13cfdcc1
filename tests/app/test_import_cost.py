"""What it costs to import the API and the client."""

from __future__ import annotations

import json
import subprocess
import sys

NEVER = {"torch", "transformers", "tokenizers", "sympy", "decoding", "ltlf2dfa", "lemminflect", "FAdo"}
LATER = {"redis", "uvicorn", "typer", "rich", "opentelemetry.sdk", "httpx2", "pydantic_settings"}
SERVING = """
import app.main, app.http_server, app.wiring, app.auth.redis_counters
from starlette.testclient import TestClient
from app.settings import Settings
settings = Settings.of(broker="unix:///nowhere", store="unix:///nowhere", secret=b"0" * 16)
app.wiring.open_broker(settings), app.wiring.open_store(settings), app.wiring.open_limiter(settings)
with TestClient(app.main.create_app(Settings.of(embedded_workers=()))) as client:
    assert client.get("/health").status_code == 200
"""
SHOW = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))\n"


def loaded(*statements: str) -> list[set[str]]:
    """The modules of a fresh process after each of its statements."""
    code = "".join(statement + SHOW for statement in statements)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def test_an_api_loads_only_what_it_needs() -> None:
    """With Redis and keys it loads their libraries, and still no model."""
    imported, serving = loaded("from app.main import create_app", SERVING)
    assert not imported & (NEVER | LATER), imported & (NEVER | LATER)
    assert len(imported) < 1_000, sorted(imported)
    assert {"redis", "uvicorn"} <= serving
    assert not serving & NEVER, serving & NEVER


def test_the_client_loads_only_what_it_needs() -> None:
    (modules,) = loaded("import abs_client")
    never = {"app", "compiler", "decoding", "torch", "numpy", "pydantic", "fastapi"}
    assert not modules & never, modules & never
    assert len(modules) < 350, sorted(modules)
