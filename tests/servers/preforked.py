"""One process for a whole run of the tests that has imported what takes longest; nurseries are forked from it.

PyTorch, transformers and the service's modules take seconds of processor time to import, and a run starts some hundred
processes that need them. Where tests run in several processes at once (tests/conftest.py), the first starts this one;
elsewhere nothing is forked from it. What is forked goes on as a nursery (tests/servers/forkserver.py) on the
connection that asked for it, and ends with that.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers import forkserver as nursery

IMPORTED = (
    *nursery.IMPORTED, "app.worker.handlers.generate", "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
)


class Mother:
    """The process, from the start of a run to its end."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="abs-tests-")
        os.environ[nursery.MOTHER] = self._folder
        command = [sys.executable, "-m", "tests.servers.preforked", self._folder]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def end(self) -> None:
        """End it, and with it all nurseries."""
        self._process.kill()
        self._process.wait()
        os.environ.pop(nursery.MOTHER, None)
        shutil.rmtree(self._folder, ignore_errors=True)


def _bear(folder: Path) -> list[str]:
    """Fork at each connection, which is a child's standard input and output. Returns in each, what it is to import."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "new"))
        door.listen(64)
        (folder / "new").rename(folder / "socket")
        while True:
            line, _ = door.accept()
            with line:
                if os.fork():
                    continue
                nursery.die_with_parent()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for standard in (0, 1):
                    os.dup2(line.fileno(), standard)
            break
    sys.stdout = os.fdopen(1, "w", closefd=False)
    wanted: list[str] = json.loads(nursery.read_line())
    return wanted


if __name__ == "__main__":
    nursery.die_with_parent()
    for name in IMPORTED:
        importlib.import_module(name)
    for name in _bear(Path(sys.argv[1])):
        importlib.import_module(name)
    nursery.tend()
