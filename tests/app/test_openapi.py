from __future__ import annotations

import json
from pathlib import Path

from app.api.errors import ERRORS
from app.main import create_app
from app.settings import Settings

COMMITTED = Path(__file__).parents[2] / "openapi.json"


def test_the_committed_document_is_fresh() -> None:
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == create_app(Settings()).openapi(), (
        "run: abs openapi --output openapi.json"
    )


def test_every_path_documents_its_errors_as_problems() -> None:
    document = create_app(Settings()).openapi()
    codes = {row.code for row in ERRORS.values()} - {"client_gone"}
    described = ""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if not status.startswith("2"):
                    assert list(response["content"]) == ["application/problem+json"], (path, status)
                    described += response["description"]
    missing = {code for code in codes if code not in described} - {"not_found", "method_not_allowed"}
    assert not missing
    assert "Problem" in document["components"]["schemas"]


def test_every_reference_leads_somewhere() -> None:
    document = create_app(Settings()).openapi()
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]
