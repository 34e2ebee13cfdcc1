"""Access keys for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.auth import add_key, new_key


def stored_key(path: Path, name: str, *scopes: str, **limits: Any) -> str:
    """Add a new key to the file and return its text."""
    text, key = new_key(name, scopes, **limits)
    add_key(path, key)
    return text


def bearer(key: str) -> dict[str, str]:
    """The headers of a request with a key."""
    return {"authorization": f"Bearer {key}"}
