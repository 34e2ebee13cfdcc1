"""The data folder of `abs up`: its layout, its lock, and the secret that is made once and kept in it."""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.errors import SettingsInvalid

SOCKET_PATH_BYTES_MAX = 103  # macOS allows the fewest: 104 with the final zero
PID_MAX = 4_194_304  # of Linux
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Folder:
    """A data folder that this process alone works in, as long as the open file `lock` lives here or in a child."""

    path: Path
    lock: int

    @property
    def server_socket(self) -> Path:
        return self.path / "server.sock"

    @property
    def server_data(self) -> Path:
        return self.path / "server"

    @property
    def server_conf(self) -> Path:
        return self.path / "server.conf"

    @property
    def control_socket(self) -> Path:
        return self.path / "control.sock"

    @property
    def supervisor_conf(self) -> Path:
        return self.path / "supervisor.conf"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def secret(self) -> Path:
        return self.path / "secret"

    def write(self, path: Path, text: str) -> None:
        """Write a file atomically, readable for its owner only."""
        draft = path.with_suffix(".new")
        with suppress(FileNotFoundError):
            draft.unlink()
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)


def open_folder(path: Path) -> Folder:
    """The folder, made where it is missing, and locked. Raises SettingsInvalid where it cannot serve."""
    path = path.expanduser().absolute()
    folder = Folder(path, -1)
    longest = f"{folder.control_socket}.{PID_MAX}"  # supervisor's draft of its socket
    if len(os.fsencode(longest)) > SOCKET_PATH_BYTES_MAX:
        raise SettingsInvalid(
            f"the path of the data folder is too long: {longest} may be the name of a socket, and those have at most "
            f"{SOCKET_PATH_BYTES_MAX} bytes; give --data, or ABS_DATA_DIR, a shorter one"
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        folder = Folder(path, _locked(path))
        for one in (folder.server_data, folder.logs):
            one.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SettingsInvalid(f"the data folder {path} cannot be used: {error.strerror}") from error
    if not folder.secret.exists():
        folder.write(folder.secret, secrets.token_hex(SECRET_BYTES) + "\n")
    return folder


def _locked(path: Path) -> int:
    """An open file with the folder's lock, which names the process that holds it."""
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
        os.close(lock)
        raise SettingsInvalid(
            f"the data folder {path} is in use by another `abs up` (process {holder}), or one that is still stopping: "
            "stop that one, or give this one a folder of its own by --data"
        ) from None
    os.truncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock
