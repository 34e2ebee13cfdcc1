"""A clone of this repository, and the shell commands of the pages.

The clone is made as the tutorial describes. This table lists the substitutes for what a test lacks; commands are
otherwise unchanged:

    <this repository>     the path of this one; uncommitted changes are copied into the clone
    make's installation   the environment that runs the tests, as the clone's .venv
    /models/my-model      a copy of the built-in model
    Qwen/Qwen2.5-0.5B     the built-in model's files, under that name in a local cache of the hub, used offline
    port 8000             a free one
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil

from app.settings import BUILT_IN_MODEL
from docs.tools.pages import DOCS, Block, blocks, pages
from tests.servers.abs_up import STOP_S_MAX, end_all
from tests.servers.processes import START_S_MAX, alive, free_port, until

ROOT = DOCS.parent
CLONE = "git clone <this repository> abs-server && cd abs-server"
OF_A_FOLDER, OF_THE_HUB = "/models/my-model", "Qwen/Qwen2.5-0.5B"
COMMAND_S_MAX = 180.0
_COMMAND = re.compile(r"(\w+=\S+ )*(git clone|make|docker|python3 deploy/\S+|\.venv/bin/abs (serve|up|doctor))\b")
_NOT_A_READER_S = re.compile(r"(ABS|GIT|HF)_|MAKE|MFLAGS$|HOST$|PYTHONDONTWRITEBYTECODE$|PYTHONPYCACHEPREFIX$")
_STAMP = re.compile(r"^\w+ := \$\(VENV\)/(\.\w+)$", re.MULTILINE)


def typed_in_a_checkout(block: Block) -> bool:
    """Whether a block installs, starts or keeps running.

    Such blocks are no part of a conversation with a running service.
    """
    return block.language == "sh" and _COMMAND.match(block.code) is not None


def commands() -> dict[str, list[str]]:
    """The distinct lines of these blocks, in page order. Each has the names of its blocks."""
    block_names: dict[str, list[str]] = {}
    for page in (ROOT / "README.md", *pages()):
        for block in filter(typed_in_a_checkout, blocks(page)):
            for line in block.code.splitlines():
                block_names.setdefault(line.partition(" #")[0].strip(), []).append(block.name)
    return block_names


class Checkout:
    """The clone, in the home of a reader who has nothing else."""

    def __init__(self, home: Path) -> None:
        self.home, self.path = home, home
        # The repository may belong to another user, as it does in a container.
        (home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n", encoding="utf-8")
        self.path = Path(self.run(f"{CLONE}\npwd").splitlines()[-1])
        self._bring_up_to_date()
        self._install()
        self._put_models()

    def _bring_up_to_date(self) -> None:
        """Copies the uncommitted changes, so that this tree is tested."""
        root = shlex.quote(str(ROOT))
        paths = self.run(f"cd {root}; git diff --name-only -z HEAD; git ls-files -z --others --exclude-standard")
        for name in filter(None, paths.split("\0")):
            if (ROOT / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.path / name)
            else:
                (self.path / name).unlink(missing_ok=True)

    def _install(self) -> None:
        """Leave it as make does. What pip does there was done before any test, by the same rules of the Makefile."""
        stamps = _STAMP.findall((self.path / "Makefile").read_text(encoding="utf-8"))
        assert {".serving", ".installed"} <= set(stamps)
        (self.path / ".venv").mkdir()
        (self.path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
        for stamp in stamps:
            (self.path / ".venv" / stamp).touch()

    def environment(self) -> dict[str, str]:
        """The environment of a reader's shell, with the clone on PYTHONPATH.

        Without PYTHONPATH Python could import the installed package instead of the clone.
        """
        variables = {name: value for name, value in os.environ.items() if not _NOT_A_READER_S.match(name)}
        docker = os.environ.get("DOCKER_CONFIG", str(Path.home() / ".docker"))  # it says where the engine is
        return variables | {
            "HOME": str(self.home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120",
            "PYTHONPATH": str(self.path), "PYTHONSAFEPATH": "1",
            "HF_HOME": str(self.home / "hub"), "HF_HUB_OFFLINE": "1",
            "DOCKER_CONFIG": docker, "COMPOSE_PROJECT_NAME": self.home.name,  # no project that is running already
            "PIP_NO_INDEX": "1",  # were a stamp not enough, make would install the clone where the tests run
        }

    def typed(self, line: str, port: int = 8000) -> list[str]:
        """A line as it is run here."""
        folder = self.home / OF_A_FOLDER[1:]
        for placeholder, replacement in (("8000", port), ("<this repository>", ROOT), (OF_A_FOLDER, folder)):
            line = line.replace(placeholder, shlex.quote(str(replacement)))
        return ["bash", "-euo", "pipefail", "-c", line]

    def run(self, line: str, s_max: float = COMMAND_S_MAX) -> str:
        """The output of a line that exits; fails on a non-zero status."""
        with subprocess.Popen(
            self.typed(line), cwd=self.path, env=self.environment(), stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=s_max)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # all that it started, too
                raise
        assert process.returncode == 0, f"{line}\n{output}\n{errors}"
        return output

    def _put_models(self) -> None:
        """Creates the models of the pages at the paths of the pages."""
        shutil.copytree(BUILT_IN_MODEL, self.home / OF_A_FOLDER[1:])
        folder = self.home / "hub" / "hub" / f"models--{OF_THE_HUB.replace('/', '--')}"
        commit = hashlib.sha1(OF_THE_HUB.encode()).hexdigest()
        for subfolder in ("refs", "blobs", f"snapshots/{commit}"):
            (folder / subfolder).mkdir(parents=True)
        (folder / "refs" / "main").write_text(commit, encoding="ascii")
        for file in Path(BUILT_IN_MODEL).iterdir():  # as the hub's client keeps it: by content, linked from a commit
            blob = hashlib.sha256(file.read_bytes()).hexdigest()
            shutil.copy(file, folder / "blobs" / blob)
            (folder / "snapshots" / commit / file.name).symlink_to(Path("..", "..", "blobs", blob))


class Started:
    """A line that stays running, typed in a terminal of its own."""

    def __init__(self, checkout: Checkout, line: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = checkout.home / f"log-{port}"
        with open(self._log, "wb") as words:
            self.process = subprocess.Popen(
                checkout.typed(line, port), cwd=checkout.path, stdin=subprocess.DEVNULL, stdout=words,
                stderr=subprocess.STDOUT, start_new_session=True,
                env=checkout.environment() | {"PORT": str(port), "ABS_PORT": str(port), "ABS_NICE": "1"},
            )
        self._processes: set[psutil.Process] = set()

    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def ready(self) -> bool:
        """What its /ready says. Fails where it has ended."""
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"{self.url}/ready", timeout=10, trust_env=False, verify=False).is_success
        return False

    def processes(self) -> set[psutil.Process]:
        """All live processes that the line started. A process whose parent has exited is recognised by its session."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._processes |= set(psutil.Process(self.process.pid).children(recursive=True))
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if pid != self.process.pid and os.getsid(pid) == self.process.pid:
                    self._processes.add(psutil.Process(pid))
        return {process for process in self._processes if alive(process.pid)}

    def command_lines(self) -> list[str]:
        """Of all these processes."""
        lines = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                lines.append(" ".join(process.cmdline()))
        return lines

    def interrupt(self) -> int:
        """Sends Ctrl-C to the terminal's foreground processes and returns the exit status."""
        self.processes()
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(STOP_S_MAX)

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        end_all(self.process, self.processes())


@contextlib.contextmanager
def started(checkout: Checkout, line: str) -> Iterator[Started]:
    """A line that keeps running, once the service it starts is ready."""
    running = Started(checkout, line)
    try:
        until(running.ready, f"{line} is ready", START_S_MAX, poll_s=0.2)
        yield running
    finally:
        running.end()
