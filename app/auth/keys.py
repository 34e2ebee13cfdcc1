"""API keys: their file, and how one is made, found and taken back. Of a key only its SHA-256 is ever kept.

The file holds a JSON object a line. It is read again whenever it changes, so that a key is given or taken back without
a restart; where it cannot be read any more, the keys that were known last stay in force, and the log says so.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app.errors import SettingsInvalid, Unauthorized

SCOPES = ("generate", "compile", "admin")
FILE_BYTES_MAX = 4 * 2**20
KEY_CHARS_MAX = 128
LOOK_EVERY_S = 1.0  # how often the file is asked whether it has changed
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_KEY = re.compile(r"abs_([0-9a-f]{12})_[0-9a-f]{48}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NOBODY = "0" * 64  # no text is known to have this SHA-256
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """A line of the file.

    id       names the key itself, and is a part of it; not secret
    name     whose it is: jobs belong to the name, and so do limits; several keys may have one name, as when one
             takes another's place
    scopes   what it opens
    expires  Unix time in s
    requests_per_minute, concurrency_max, beam_tokens_per_minute
             None is the settings' own, 0 without limit

    Raises ValueError, with a message that holds nothing secret, where a field is not what it should be.
    """

    id: str
    name: str
    sha256: str
    scopes: tuple[str, ...]
    expires: float | None = None
    requests_per_minute: int | None = None
    concurrency_max: int | None = None
    beam_tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{12}", self.id):
            raise ValueError("id must be 12 hexadecimal digits")
        if not _NAME.fullmatch(self.name):
            raise ValueError("name must be 1 to 64 letters, digits or . _ @ -, and begin with a letter or a digit")
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError("sha256 must be 64 hexadecimal digits")
        if not self.scopes or not set(self.scopes) <= set(SCOPES):
            raise ValueError(f"scopes must be a list, each one of {', '.join(SCOPES)}")
        for limit in (self.requests_per_minute, self.concurrency_max, self.beam_tokens_per_minute):
            if limit is not None and (type(limit) is not int or limit < 0):
                raise ValueError("a limit must be a whole number, 0 or more")


def new_key(name: str, scopes: Iterable[str], expires: float | None = None, **limits: int | None) -> tuple[str, Key]:
    """A fresh key, to be shown once, and the line that is kept of it. Raises ValueError, as Key does."""
    chosen = secrets.token_hex(6)
    text = f"abs_{chosen}_{secrets.token_hex(24)}"
    return text, Key(chosen, name, _digest(text), tuple(dict.fromkeys(scopes)), expires, **limits)


def when(text: str) -> float:
    """The Unix time of an ISO 8601 date or time, UTC unless it says otherwise. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def line_of(key: Key) -> str:
    """A key as its line of the file."""
    fields = {name: value for name, value in dataclasses.asdict(key).items() if value is not None}
    if key.expires is not None:
        fields["expires"] = datetime.fromtimestamp(key.expires, UTC).isoformat()
    return json.dumps(fields)


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys of a file. Raises SettingsInvalid, naming the file and the line, never what stands there."""
    try:
        if path.stat().st_mode & 0o002:
            raise SettingsInvalid(f"{path} may be written by anyone: chmod o-w it")
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsInvalid(f"the keys in {path} cannot be read ({error.strerror})") from None
    if len(data) > FILE_BYTES_MAX:
        raise SettingsInvalid(f"{path} is longer than {FILE_BYTES_MAX} bytes")
    keys: dict[str, Key] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            key = _read(line)
        except (ValueError, TypeError) as error:  # json's own messages quote nothing
            raise SettingsInvalid(f"{path}, line {number}: not a key ({error})") from None
        if keys.setdefault(key.id, key) is not key:
            raise SettingsInvalid(f"{path}, line {number}: the id {key.id} was there before")
    return tuple(keys.values())


def _read(line: bytes) -> Key:
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("a line must be a JSON object")
    unknown = set(fields) - {field.name for field in dataclasses.fields(Key)}
    if unknown:
        raise ValueError("a field is not known")
    texts = [fields.get(name) for name in ("id", "name", "sha256")] + [fields.get("expires", "")]
    scopes = fields.get("scopes")
    if not all(isinstance(text, str) for text in texts) or not isinstance(scopes, list):
        raise ValueError("id, name, sha256 and expires must be strings, scopes a list of them")
    if "expires" in fields:
        fields["expires"] = when(fields["expires"])
    return Key(**fields | {"scopes": tuple(map(str, scopes))})


def add_key(path: Path, key: Key) -> None:
    """Append a key to the file, which is made, for its owner alone, where there is none. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{line_of(key)}\n".encode())  # one write: two of these at once leave two whole lines
    finally:
        os.close(file)


def remove_key(path: Path, id: str) -> bool:
    """Take a key out of the file; False where it holds none of that id. Raises SettingsInvalid, OSError."""
    keys = read_keys(path)
    kept = [key for key in keys if key.id != id]
    if len(kept) == len(keys):
        return False
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
        file.writelines(f"{line_of(key)}\n" for key in kept)
    beside.replace(path)
    return True


class KeyRing:
    """The keys of a file, as it stands. Raises SettingsInvalid where it cannot be read at first, or holds none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked, self._seen = time.monotonic(), _stamp(path)
        self._keys = {key.id: key for key in read_keys(path)}
        if not self._keys:
            raise SettingsInvalid(f"{path} holds no key: abs keys new NAME --scope generate --scope compile")

    def find(self, text: str) -> Key:
        """The key of that text. Raises Unauthorized. How long it takes does not tell whether there is such a key."""
        self._look()
        shape = _KEY.fullmatch(text)
        key = self._keys.get(shape[1]) if shape else None
        right = hmac.compare_digest(_digest(text[:KEY_CHARS_MAX]), key.sha256 if key else _NOBODY)
        if key is None or not right:
            raise Unauthorized("the key is not known here")
        if key.expires is not None and key.expires <= time.time():
            raise Unauthorized("the key has expired")
        return key

    def _look(self) -> None:
        """Read the file again where it has changed."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._keys = {key.id: key for key in read_keys(self._path)}
        except SettingsInvalid as error:
            log.error("the keys are left as they were: %s", error)
        else:
            log.info("the keys were read again: there are %d", len(self._keys))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file's content; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
