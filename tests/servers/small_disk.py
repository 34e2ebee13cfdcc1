"""A disk of a few MiB that is really full when it is full: a file system in memory, for a server's data. Linux only.

It is mounted in a namespace of its own, which needs no right where the system lets its users have such; in most
containers they may not. Who is to see it enters the namespace, and from outside it is seen through the process that
keeps it.
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
    """`inside` is where those see it who have entered, `folder` where all others do."""

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
    """A disk at an empty folder, for as long as the statement's body lasts. Raises NoDisk."""
    command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", str(BYTES), str(inside))
    try:
        keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        raise NoDisk(str(error)) from error
    with keeper:  # it ends when its input does
        assert keeper.stdout is not None
        said = keeper.stdout.readline().strip()
        if said != "mounted":
            raise NoDisk(said)
        yield SmallDisk(inside, keeper.pid)
