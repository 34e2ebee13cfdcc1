"""Makes a process and its children refuse and log unpickling. It takes effect with this folder on PYTHONPATH.

NO_PICKLE_LOG names a file. It gets a line for each process under this rule, and for each attempt with its place.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

LOG, HERE = os.environ.get("NO_PICKLE_LOG", ""), str(Path(__file__).parent)


def note(line: str) -> None:
    """Add a line to the log, in one write."""
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode() + b"\n")
    os.close(file)


def refuse(*_: Any, **__: Any) -> Any:
    """In place of what unpickles."""
    frames = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(traceback.extract_stack()[-8:-1]))
    note(f"UNPICKLED {frames}")
    raise RuntimeError("nothing is unpickled here")


class Refusing:
    """In place of Unpickler, of which libraries make classes of their own."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse()


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """Starts processes under the same rule, the isolated ones too."""

    def __init__(self, arguments: Any, *others: Any, **options: Any) -> None:
        environment = dict(os.environ if options.get("env") is None else options["env"])
        options["env"] = environment | {"PYTHONPATH": HERE, "NO_PICKLE_LOG": LOG}
        if isinstance(arguments, list):
            arguments = [part for part in arguments if part != "-I"]
        super().__init__(arguments, *others, **options)


if LOG:
    for module in (pickle, sys.modules[pickle.Unpickler.__module__]):  # the second is the one in C
        for name in list(vars(module)):
            replacement = {"load": refuse, "loads": refuse, "Unpickler": Refusing}.get(name.removeprefix("_"))
            if replacement is not None:  # under its other name too
                setattr(module, name, replacement)
    subprocess.Popen = Popen  # type: ignore[misc]
    note(f"STARTED {' '.join(sys.orig_argv[1:6])[:200]}")
