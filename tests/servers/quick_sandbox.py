"""Opens the compile sandbox without the tables of JSON formats.

They take half of its start. A job that needs the table of a format compiles it. See quick_start.py.
"""

from __future__ import annotations

from collections.abc import Callable

from app.worker.sandbox import compile_task
from compiler.json_schema import FORMATS


def open_job(setup: bytes) -> tuple[Callable[[bytes], bytes], bytes]:
    """The function from requests to answers, with a request to rehearse it."""
    *others, schema = compile_task.WARM_UP
    object_schema = schema["json_schema"]
    assert isinstance(object_schema, dict)
    properties = {name: each for name, each in object_schema["properties"].items() if name not in FORMATS}
    warm_up = (*others, {"json_schema": object_schema | {"properties": properties}})
    setattr(compile_task, "WARM_UP", warm_up)  # noqa: B010  # it is constant, as types go
    return compile_task.open_job(setup)
