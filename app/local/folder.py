"""The data folder of `abs up` with its layout, lock and secret."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from pathlib import Path

from app.errors import SettingsInvalid

SOCKET_PATH_BYTES_MAX = 103  # of macOS, the shortest: 104 with the final zero
SECRET_BYTES = 32


class Folder:
    """A locked data folder. The lock lasts while this process or a child has the file `lock` open."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self.lock = path, lock
        self.server_socket, self.server_conf = path / "server.sock", path / "server.conf"
        self.server_data, self.logs, self.secret = path / "server", path / "logs", path / "secret"

    def write(self, path: Path, text: str) -> None:
        """Writes a file atomically, readable by its owner only."""
        with tempfile.NamedTemporaryFile("w", dir=self.path, encoding="utf-8", delete=False) as draft:
            draft.write(text)
        os.replace(draft.name, path)  # at the end, so readers see the old or the new file


def open_folder(path: Path) -> Folder:
    """The folder, created if missing, and locked. Raises SettingsInvalid if it cannot be used."""
    path = path.expanduser().absolute()
    folder = Folder(path, -1)
    if len(os.fsencode(folder.server_socket)) > SOCKET_PATH_BYTES_MAX:
        raise SettingsInvalid(
            f"the path of the data folder is too long: the socket {folder.server_socket} would exceed "
            f"{SOCKET_PATH_BYTES_MAX} bytes; set --data or ABS_DATA_DIR to a shorter path"
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        folder = Folder(path, _locked(path))
        for directory in (folder.server_data, folder.logs):
            directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SettingsInvalid(f"the data folder {path} cannot be used: {error.strerror}") from error
    if not folder.secret.exists():
        folder.write(folder.secret, secrets.token_hex(SECRET_BYTES) + "\n")
    return folder


def _locked(path: Path) -> int:
    """An open file with the folder's lock. It contains the id of its process."""
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
        os.close(lock)
        raise SettingsInvalid(
            f"the data folder {path} is in use by another `abs up` (process {holder}), which may be stopping: stop it, "
            "or use another folder with --data"
        ) from None
    os.truncate(lock, 0)  # the id of an earlier holder may be longer
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock
