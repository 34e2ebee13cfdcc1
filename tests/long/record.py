"""Records the runs of the long targets of make in LAST.md.

    python -m tests.long.record TARGET -- COMMAND...

Runs the command and writes the target's row: the result, the time, and a digest of the files that the target depends
on. The exit status is the command's, where 3 means that this machine cannot run it. `--stale` prints the targets whose
files have changed since they passed; in CI, test_record.py fails if there are any.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("LAST.md")
HEAD = """# The last runs of the long targets

Written by `tests/long/record.py`, where a table says which files a digest covers. `make records` runs
the targets whose files have changed since they passed.

| target | result | finished | took | digest |
|---|---|---|---|---|
"""
ROW = re.compile(r"^\| ([\w-]+) \| ([\w ]+) \| .+ \| (\w+) \|$", re.MULTILINE)
NOT_RUN = 3  # an exit status
IMAGES = ("Dockerfile", ".dockerignore", "locks", "pyproject.toml", "deploy")
TARGETS: dict[str, tuple[str, ...]] = {  # the files and folders on which each depends
    "image": IMAGES,
    "compose-test": (
        *IMAGES, "docker-compose.yml", "tests/deploy/with_engine.sh", "tests/deploy/engine.py",
        "tests/deploy/containers.py", "tests/deploy/test_images.py", "tests/deploy/test_running_containers.py",
    ),
    "lowest": ("pyproject.toml", "locks", "tools/lowest.py"),
    "pythons": ("pyproject.toml", "locks", "tools/lowest.py", "tools/pythons.py"),
    "clients": ("app/openai", "app/anthropic", "abs_client", "tests/long/clients", "docs/agents.md"),
    "tokenizers": ("compiler/vocab", "decoding/token_texts.py", "tests/long/real_tokenizers.py"),
    # `make test` runs those tests of the page that take little.
    "page": ("app/playground", "tests/app/playground"),
    "starts": ("Makefile", "pyproject.toml", "locks", "tools/install.py", "app/cli", "app/local"),
    # hatchling leaves out what .gitignore names.
    "distributions": ("pyproject.toml", ".gitignore", "locks/build.txt", "tools/distributions.py", "tools/install.py"),
    # `make test` builds the pages themselves.
    "docs": ("mkdocs.yml", "docs/tools"),
    "audit": ("locks", "tests/requirements-linux.txt", "tools/audit.py"),
    # The scripts decide what survives a kill. `make test` causes the faults of the other parts of the broker.
    "chaos": ("app/broker/redis/lua", "tests/long/chaos.py"),
    # What stands before the routes, and what reads stored values. `make test` attacks the routes in short.
    "abuse": (
        "app/http_server.py", "app/api/middleware", "compiler/codec.py", "deploy/nginx", "tests/long/abuse.py",
        "tests/long/mutants.py",
    ),
    # What the guarantee rests on. `make test` has a short form for the rest of the compiler and the decoders.
    "fuzz-long": (
        "compiler/automata", "compiler/lifting", "tests/long/fuzz.py", "tests/long/fuzz_paths.py",
        "tests/long/pushdown_fuzz.py",
    ),
    # It takes hours and depends on all, so it is run before a release and never demanded.
    "test-long": (),
}  # fmt: skip
OPTIONAL = {"pythons", "audit"}  # may stay "not run": they need other interpreters, and an advisory service


def _content(path: Path) -> bytes:
    """A file's content; pyproject.toml without settings of lint, types and tests."""
    if path.name != "pyproject.toml":
        return path.read_bytes()
    project = tomllib.loads(path.read_text(encoding="utf-8"))
    project["tool"] = {name: table for name, table in project.get("tool", {}).items() if name == "hatch"}
    return json.dumps(project, sort_keys=True).encode()


def digest(target: str) -> str:
    """Covers paths and contents, but not what .gitignore names. Raises FileNotFoundError for a missing file."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    covered = hashlib.sha256()
    for top in (ROOT / name for name in TARGETS[target]):
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            name = path.relative_to(ROOT)
            if not path.is_dir() and not any(part.match(line) for part in (name, *name.parents) for line in ignored):
                covered.update(f"{name.as_posix()} {hashlib.sha256(_content(path)).hexdigest()}\n".encode())
    return covered.hexdigest()[:16]


def rows() -> dict[str, tuple[str, str, str]]:
    """The line, the result and the digest of each target."""
    return {row[1]: (row[0], row[2], row[3]) for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))}


def stale() -> list[str]:
    """The targets that have not passed with these files."""
    found, names = rows(), []
    for target, files in TARGETS.items():
        _, result, covered = found.get(target, ("", "", ""))
        accepted = ("passed", "not run") if target in OPTIONAL else ("passed",)
        if files and (result not in accepted or covered != digest(target)):
            names.append(target)
    return names


def record(target: str, command: Sequence[str]) -> int:
    """The exit status of the command. A target that cannot run here leaves the row of a run with these files."""
    start, before = time.monotonic(), digest(target)
    status = subprocess.run(command, check=False).returncode
    if digest(target) != before:
        print(f"{target}: not recorded, because its files have changed during the run", file=sys.stderr)
        return status or 1
    lines = rows()
    if status != NOT_RUN or lines.get(target, ("", "", ""))[2] != before:
        result = {0: "passed", NOT_RUN: "not run"}.get(status, "failed")
        finished, minutes = time.strftime("%Y-%m-%d %H:%M", time.gmtime()), (time.monotonic() - start) / 60
        lines[target] = (f"| {target} | {result} | {finished} | {minutes:.1f} min | {before} |", result, before)
        PAGE.write_text(HEAD + "".join(f"{lines[name][0]}\n" for name in TARGETS if name in lines), encoding="utf-8")
    return status


if __name__ == "__main__":
    if sys.argv[1:] == ["--stale"]:
        print(*stale())
    elif len(sys.argv) > 3 and sys.argv[2] == "--":
        raise SystemExit(record(sys.argv[1], sys.argv[3:]))
    else:
        raise SystemExit(__doc__)
