"""The Lua scripts of the broker. Each is atomic."""

from __future__ import annotations

from pathlib import Path

from app.broker import throughput as pace
from app.redis.connection import script

_FOLDER = Path(__file__).parent / "lua"
_PACE = {
    "PACE_MEMORY_MS": pace.MEMORY_S * 1000, "PACE_IDLE_MEMORY_MS": pace.IDLE_MEMORY_S * 1000,
    "PACE_KNOWN_MS": pace.WAITING_S_MIN * 1000, "PACE_SHARE": pace.DEADLINE_SHARE,
    "PACE_LATEST": pace.LATEST_RUN_WEIGHT, "PACE_RUN_SHARE": pace.RUN_TIME_SHARE,
}
_CONSTANTS = "".join(f"local {name} = {value}\n" for name, value in _PACE.items())
_COMMON = (_FOLDER / "common.lua").read_text(encoding="utf-8")


def _read(name: str, when_full: bool = True) -> str:
    """A script with its common part. Scripts that free memory must also run on a full server."""
    flags = " flags=allow-oom" if when_full else ""
    return f"#!lua{flags}\n" + _CONSTANTS + _COMMON + (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")


SUBMIT = script(_read("submit", when_full=False))
SHARE = script(_read("share"))
CANCEL = script(_read("cancel"))
STATE = script(_read("state"))
LOOK = script(_read("look"))
READ = script(_read("read"))
PEEK = script(_read("peek"))
TAKE = script(_read("take"))
GIVE_BACK = script(_read("give_back"))
PUBLISH = script(_read("publish"))
FINISH = script(_read("finish"))
REFUSE = script(_read("refuse"))
CLAIM = script(_read("claim"))
TICKET = script(_read("ticket"))
RENEW = script(_read("renew"))
SWEEP = script(_read("sweep"))
ANNOUNCE = script(_read("announce"))
WORKERS = script(_read("workers"))
BACKLOG = script(_read("backlog"))
