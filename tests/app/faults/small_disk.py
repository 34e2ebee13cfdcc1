"""An in-memory file system of a few MiB that can fill up. It holds a server's data. Linux only.

It is mounted in a separate namespace, which needs no privilege where the system allows user namespaces; most containers
do not. A process that needs the disk enters the namespace. Others reach it through the process that keeps it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

BYTES = 16 * 2**20
MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && echo mounted && read nothing'


class NoDisk(Exception):
    """The system does not let us have one."""


class SmallDisk:
    """The disk's two paths. `inside` is its path for processes in the namespace, `folder` the path for all others."""

    def __init__(self, inside: Path, keeper: int) -> None:
        self.inside, self.folder = inside, Path(f"/proc/{keeper}/root{inside}")
        self._filler = self.folder / "filler"
        self.enter = ("nsenter", "--target", str(keeper), "--user", "--mount", "--preserve-credentials")

    def fill(self) -> None:
        """Leave no page of it free."""
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(os.sysconf("SC_PAGE_SIZE")))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def make_room(self) -> None:
        """Take away what `fill` brought."""
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(inside: Path) -> Iterator[SmallDisk]:
    """A disk mounted at an empty folder during the statement's body. Raises NoDisk."""
    command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", str(BYTES), str(inside))
    try:
        keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        raise NoDisk(str(error)) from error
    with keeper:  # it ends when its input does
        assert keeper.stdout is not None
        status = keeper.stdout.readline().strip()
        if status != "mounted":
            raise NoDisk(status)
        yield SmallDisk(inside, keeper.pid)
