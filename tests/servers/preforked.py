"""One process that has imported the slow modules. Fork servers of a whole test run are forked from it.

Importing PyTorch, transformers and the service's modules takes seconds of processor time, and a run starts about a
hundred processes that need them. The process has loaded the built-in models, too. If tests run in several processes at
once, tests/conftest.py starts it first; otherwise there is none. Each connection forks one fork server (forkserver.py),
which serves that connection and ends with it.
"""

from __future__ import annotations

import gc
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

from tests.servers import forkserver, quick_sandbox
from tests.servers.processes import die_with_parent

IMPORTED = (
    *forkserver.IMPORTED, "app.worker.handlers.generate", "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama", "tests.servers.preloaded_model",
)


class PreforkedProcess:
    """The process, during a run in a number of test processes."""

    def __init__(self, testers: int) -> None:
        self._folder = tempfile.mkdtemp(prefix="abs-tests-")
        os.environ[forkserver.PREFORKED] = self._folder
        command = [sys.executable, "-m", "tests.servers.preforked", self._folder, str(testers)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def end(self) -> None:
        """Ends it and all its fork servers."""
        self._process.kill()
        self._process.wait()
        os.environ.pop(forkserver.PREFORKED, None)
        shutil.rmtree(self._folder, ignore_errors=True)


def _fork_loop(folder: Path) -> list[str]:
    """Forks at each connection, which becomes the child's standard input and output.

    Returns in each child, with the modules that it is to import.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the children need no wait
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "new"))
        listener.listen(64)
        (folder / "new").rename(folder / "socket")
        while True:
            line, _ = listener.accept()
            with line:
                if os.fork():
                    continue
                die_with_parent()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for standard in (0, 1):
                    os.dup2(line.fileno(), standard)
            break
    sys.stdout = os.fdopen(1, "w", closefd=False)
    modules: list[str] = json.loads(forkserver.read_line())
    return modules


if __name__ == "__main__":
    die_with_parent()
    if os.fork() == 0:
        die_with_parent()
        quick_sandbox.serve(Path(sys.argv[1]), int(sys.argv[2]))
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # see forkserver.serve
    for name in _fork_loop(Path(sys.argv[1])):
        importlib.import_module(name)
    forkserver.serve()
