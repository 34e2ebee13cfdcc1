"""The key file: commands, strict reading, reloading, and hashed keys."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.auth import Key, KeyRing, read_keys, remove_key, scope_of, when
from app.auth import keys as keys_module
from app.auth.keys import line_of
from app.cli.keys import key_commands
from app.errors import MethodNotAllowed, RouteNotFound, SettingsInvalid, Unauthorized
from tests.app.access_keys import stored_key


@pytest.fixture(autouse=True)
def no_check_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "CHECK_INTERVAL_S", 0.0)


def add_keys(path: Path, *names: str) -> list[str]:
    """Add keys with these names and return their texts."""
    return [stored_key(path, name, "generate") for name in names]


def test_a_key_is_verified_without_being_stored(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    anna, ben = add_keys(path, "anna", "ben")
    ring = KeyRing(path)
    assert (ring.find(anna).name, ring.find(ben).name) == ("anna", "ben")
    secret = anna.rpartition("_")[2]
    assert secret not in path.read_text() and secret not in repr(ring.find(anna))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"), lambda text: text[:-1], lambda text: text + "0",
     lambda text: "abs_" + "0" * 12 + text[16:], lambda text: text.upper(), lambda text: "", lambda text: "abs_",
     lambda text: text + "\n", lambda text: "\ud800", lambda text: "x" * 100_000],
)
def test_an_almost_correct_key_is_refused(change: Any, tmp_path: Path) -> None:
    text, = add_keys(tmp_path / "keys", "anna")
    with pytest.raises(Unauthorized, match="unknown"):
        KeyRing(tmp_path / "keys").find(change(text))


def test_an_expired_key_is_refused(tmp_path: Path) -> None:
    text = stored_key(tmp_path / "keys", "anna", "generate", expires=time.time() - 1)
    with pytest.raises(Unauthorized, match="expired"):
        KeyRing(tmp_path / "keys").find(text)


def test_keys_are_added_and_removed_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    anna, = add_keys(path, "anna")
    ring = KeyRing(path)
    ben, = add_keys(path, "ben")
    assert ring.find(ben).name == "ben"
    assert remove_key(path, ring.find(anna).id)
    with pytest.raises(Unauthorized):
        ring.find(anna)
    assert ring.find(ben).name == "ben"
    assert not remove_key(path, "0" * 12)


def test_an_invalid_or_missing_key_file_keeps_the_old_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    anna, = add_keys(path, "anna")
    ring = KeyRing(path)
    path.write_text("abs_MARKER\n")
    assert ring.find(anna).name == "anna"
    path.unlink()
    assert ring.find(anna).name == "anna"
    assert "stay in force" in caplog.text and "MARKER" not in caplog.text


def test_key_lookup_takes_the_same_steps_for_unknown_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, = add_keys(tmp_path / "keys", "anna")
    ring, comparisons = KeyRing(tmp_path / "keys"), []
    compare_digest = keys_module.hmac.compare_digest
    monkeypatch.setattr(
        keys_module.hmac, "compare_digest", lambda a, b: comparisons.append((a, b)) or compare_digest(a, b)
    )
    for key in (text, text[:-1] + "?", "abs_" + "0" * 12 + text[16:], "", "x" * 5_000):
        with suppress(Unauthorized):
            ring.find(key)
    assert len(comparisons) == 5
    assert all(len(ours) == len(theirs) == 64 for ours, theirs in comparisons)


VALID_LINE = {"id": "0" * 12, "name": "anna", "sha256": "0" * 64, "scopes": ["generate"]}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x"}, {"id": 3}, {"name": ""}, {"name": "a b"}, {"name": "a" * 65}, {"name": None}, {"sha256": "0"},
        {"scopes": []}, {"scopes": ["root"]}, {"scopes": "generate"}, {"scopes": [["generate"]]}, {"expires": "soon"},
        {"expires": 5}, {"requests_per_minute": -1}, {"concurrency_max": True}, {"beam_tokens_per_minute": "7"},
        {"more": 1},
    ],
)
def test_an_invalid_key_line_is_reported_by_number_only(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "keys"
    invalid_line = VALID_LINE | change | {"id": change.get("id", "1" * 12)}
    path.write_text(f"{json.dumps(VALID_LINE)}\n\n{json.dumps(invalid_line)}\n")
    with pytest.raises(SettingsInvalid, match="line 3"):
        read_keys(path)


def test_an_unreadable_shared_empty_or_duplicate_key_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        KeyRing(path)
    duplicate_lines = f"{json.dumps(VALID_LINE)}\n{json.dumps(VALID_LINE)}\n"
    for content, reason in (("", "abs keys new"), (duplicate_lines, "twice"), ("{MARKER", "line 1")):
        path.write_text(content)
        with pytest.raises(SettingsInvalid, match=reason) as error:
            KeyRing(path)
        assert "MARKER" not in str(error.value)
    path.chmod(0o666)
    with pytest.raises(SettingsInvalid, match="chmod"):
        KeyRing(path)


def test_a_key_line_survives_a_round_trip(tmp_path: Path) -> None:
    key = Key("ab" * 6, "anna@example.org", "0" * 64, ("generate", "admin"), when("2031-01-02T03:04:05+02:00"), 0, 3, 7)
    (tmp_path / "keys").write_text(line_of(key))
    assert read_keys(tmp_path / "keys") == (key,)
    assert when("2031-01-02") == when("2031-01-02T00:00:00Z")


def test_the_commands_create_list_and_revoke_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, run = tmp_path / "keys", CliRunner()
    monkeypatch.setitem(os.environ, "ABS_KEYS_FILE", str(path))
    scopes = ["--scope", "generate", "--scope", "compile"]
    creation = run.invoke(key_commands(), ["new", "anna", *scopes, "--expires", "2031-01-31"])
    assert creation.exit_code == 0, creation.output
    text = creation.stdout.strip()
    key = KeyRing(path).find(text)
    assert (key.name, key.scopes, key.expires) == ("anna", ("generate", "compile"), when("2031-01-31"))
    listing = run.invoke(key_commands(), ["list"]).stdout
    assert key.id in listing and "2031-01-31" in listing and text.rpartition("_")[2] not in listing
    assert run.invoke(key_commands(), ["revoke", key.id]).exit_code == 0
    assert read_keys(path) == ()
    for arguments in (["new", "a b", "--scope", "generate"], ["new", "a", "--scope", "root"], ["revoke", key.id],
                      ["new", "a", "--scope", "generate", "--expires", "soon"]):
        assert run.invoke(key_commands(), arguments).exit_code == 2
    monkeypatch.delitem(os.environ, "ABS_KEYS_FILE")
    assert isinstance(run.invoke(key_commands(), ["list"]).exception, SettingsInvalid)


def test_a_path_outside_the_scope_table_stays_closed() -> None:
    for path in ("/nowhere", "/health\n", "/jobs/a/b", "//health", ""):
        with pytest.raises(RouteNotFound):
            scope_of("GET", path)
    with pytest.raises(MethodNotAllowed):
        scope_of("DELETE", "/generate")
    assert scope_of("GET", "/jobs/abc/events").counts_as_work and not scope_of("GET", "/jobs/abc").counts_as_work
