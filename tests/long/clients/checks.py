"""What the checks of all clients share.

It runs in the environments of the clients, so it imports none of them, and pydantic because all of them need it.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import BaseModel

MODEL = "captions"
PROMPT = "dog, frisbee, catch"
Check = Callable[[str], None]


class Pet(BaseModel):
    """A pet."""

    animal: Literal["dog", "cat"]
    age: int


class Tags(BaseModel):
    """A set of strings."""

    tags: set[str]


class AnyObject(BaseModel, extra="allow"):
    """Any object."""


def main(checks: Sequence[Check]) -> None:
    """Runs each check on a URL, and prints its line of JSON."""
    for check in checks:
        error = ""
        try:
            check(sys.argv[1])
        except Exception:  # of any class: it is shown, and the other checks run
            error = traceback.format_exc()
        print(json.dumps({"check": check.__name__, "error": error}), flush=True)
