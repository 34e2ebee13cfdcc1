"""API keys: their file, creation, lookup and revocation. Only the SHA-256 of a key is stored.

The file has one JSON object per line. It is read again whenever it changes, so that keys are added and revoked without
a restart. If it cannot be read any more, the last valid keys stay in force and an error is logged.
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

from app.auth.key_policy import KeyPolicy
from app.errors import SettingsInvalid, Unauthorized

SCOPES = ("generate", "compile", "admin")
FILE_BYTES_MAX = 4 * 2**20
KEY_CHARS_MAX = 128
CHECK_INTERVAL_S = 1.0  # between two checks whether the file has changed
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_KEY = re.compile(r"abs_([0-9a-f]{12})_[0-9a-f]{48}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NO_DIGEST = "0" * 64  # compared if there is no such key, so that a miss takes as long as a hit
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """A line of the file.

    id       identifies the key and is a part of it; not secret
    name     the owner of its jobs and limits; keys may share a name, for example while one replaces the other
    scopes   the scopes of the routes that it permits
    expires  Unix time in s
    requests_per_minute, concurrency_max, beam_tokens_per_minute
             None for the setting's limit, 0 for no limit
    policy   what the conversations of its requests must keep; None if they need not

    Raises ValueError for an invalid field, with a message that contains nothing secret.
    """

    id: str
    name: str
    sha256: str
    scopes: tuple[str, ...]
    expires: float | None = None
    requests_per_minute: int | None = None
    concurrency_max: int | None = None
    beam_tokens_per_minute: int | None = None
    policy: KeyPolicy | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{12}", self.id):
            raise ValueError("id must be 12 hexadecimal digits")
        if not _NAME.fullmatch(self.name):
            raise ValueError("name must be 1 to 64 letters, digits or . _ @ -, starting with a letter or a digit")
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError("sha256 must be 64 hexadecimal digits")
        if not self.scopes or not set(self.scopes) <= set(SCOPES):
            raise ValueError(f"scopes must be a list of scopes out of {', '.join(SCOPES)}")
        for limit in (self.requests_per_minute, self.concurrency_max, self.beam_tokens_per_minute):
            if limit is not None and (type(limit) is not int or limit < 0):
                raise ValueError("a limit must be an integer, 0 or more")


def new_key(
    name: str, scopes: Iterable[str], expires: float | None = None, policy: KeyPolicy | None = None,
    **limits: int | None,
) -> tuple[str, Key]:
    """A new key as text and its line of the file. The text is shown once. Raises ValueError, as Key does."""
    key_id = secrets.token_hex(6)
    text = f"abs_{key_id}_{secrets.token_hex(24)}"
    return text, Key(key_id, name, _digest(text), tuple(dict.fromkeys(scopes)), expires, policy=policy, **limits)


def when(text: str) -> float:
    """The Unix time of an ISO 8601 date or time. Without a time zone it is in UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def line_of(key: Key) -> str:
    """A key as its line of the file."""
    fields = {name: value for name, value in dataclasses.asdict(key).items() if value is not None}
    if key.expires is not None:
        fields["expires"] = datetime.fromtimestamp(key.expires, UTC).isoformat()
    if key.policy is not None:
        fields["policy"] = key.policy.as_dict()
    return json.dumps(fields)


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys of a file. Raises SettingsInvalid with the file and the line, without the line's text."""
    try:
        if path.stat().st_mode & 0o002:
            raise SettingsInvalid(f"{path} is writable by all users: run chmod o-w {path}")
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
        except (ValueError, TypeError) as error:  # messages of json quote nothing
            raise SettingsInvalid(f"{path}, line {number}: not a key ({error})") from None
        if keys.setdefault(key.id, key) is not key:
            raise SettingsInvalid(f"{path}, line {number}: the id {key.id} is used twice")
    return tuple(keys.values())


def _read(line: bytes) -> Key:
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("a line must be a JSON object")
    unknown = set(fields) - {field.name for field in dataclasses.fields(Key)}
    if unknown:
        raise ValueError("a field is unknown")
    texts = [fields.get(name) for name in ("id", "name", "sha256")] + [fields.get("expires", "")]
    scopes = fields.get("scopes")
    if not all(isinstance(text, str) for text in texts) or not isinstance(scopes, list):
        raise ValueError("id, name, sha256 and expires must be strings, scopes a list of them")
    if "expires" in fields:
        fields["expires"] = when(fields["expires"])
    if "policy" in fields:
        fields["policy"] = KeyPolicy.of(fields["policy"])
    return Key(**fields | {"scopes": tuple(map(str, scopes))})


def add_key(path: Path, key: Key) -> None:
    """Appends a key to the file. A missing file is created with mode 600. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{line_of(key)}\n".encode())  # one write, so that two processes cannot mix their lines
    finally:
        os.close(file)


def remove_key(path: Path, id: str) -> bool:
    """Removes a key from the file. False if no key has this id. Raises SettingsInvalid, OSError."""
    keys = read_keys(path)
    remaining = [key for key in keys if key.id != id]
    if len(remaining) == len(keys):
        return False
    replacement = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(replacement, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
        # The whole file is replaced: a reader sees all keys or all but one.
        file.writelines(f"{line_of(key)}\n" for key in remaining)
    replacement.replace(path)
    return True


class KeyRing:
    """The current keys of a file. Raises SettingsInvalid if the file cannot be read at first or has no key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked, self._last_stamp = time.monotonic(), _stamp(path)
        self._keys = {key.id: key for key in read_keys(path)}
        if not self._keys:
            raise SettingsInvalid(f"{path} has no key; make one: abs keys new NAME --scope generate --scope compile")

    def find(self, text: str) -> Key:
        """The key with this text. The time of the search does not depend on its existence. Raises Unauthorized."""
        self._reload()
        shape = _KEY.fullmatch(text)
        key = self._keys.get(shape[1]) if shape else None
        matches = hmac.compare_digest(_digest(text[:KEY_CHARS_MAX]), key.sha256 if key else _NO_DIGEST)
        if key is None or not matches:
            raise Unauthorized("the API key is unknown: check it, or make one with abs keys new")
        if key.expires is not None and key.expires <= time.time():
            raise Unauthorized("the key has expired")
        return key

    def _reload(self) -> None:
        """Reads the file again if it has changed."""
        now = time.monotonic()
        if now - self._checked < CHECK_INTERVAL_S:
            return
        self._checked = now
        stamp = _stamp(self._path)
        if stamp == self._last_stamp:
            return
        self._last_stamp = stamp  # first: an invalid file is reported once, not at every request
        try:
            self._keys = {key.id: key for key in read_keys(self._path)}
        except SettingsInvalid as error:
            log.error("the keys file is invalid, the last valid keys stay in force: %s", error)
        else:
            log.info("read %d keys from the changed file", len(self._keys))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """A value that changes with the file's content. None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
