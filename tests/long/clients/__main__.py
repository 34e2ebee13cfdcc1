"""Runs clients of others against a service: python -m tests.long.clients [NAME ...]

The service is that of `abs serve`, with the built-in model, and with copies of it that have the chat templates of other
families, from packages of npm. A client has an environment under .cache/clients with the
packages of its file under requirements/ alone, where its module runs. A client that cannot be installed is left out,
with the reason. A failed check fails the run. The exit status is 3 where no client could be installed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.settings import BUILT_IN_MODEL
from tests.long.clients.checks import MODEL
from tests.long.clients.environments import ClientUnavailable, command, names, version
from tests.long.real_tokenizers import bring
from tests.servers.service_process import serving

TEMPLATES = ("gemma3", "qwen3")  # whose chat templates copies of the model have
ROOT = Path(__file__).resolve().parents[3]
NOT_RUN = 3  # an exit status
CLIENT_S_MAX = 1800.0  # a client takes less than a minute on a free machine
REQUEST_S = 300.0  # `timeout_s` of requests: no check of a slow machine fails by a deadline


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check of a client. The error is empty where it passed."""

    check: str
    error: str


def check_client(name: str, url: str) -> list[CheckResult]:
    """Runs the checks of a client in its environment. Raises ClientUnavailable."""
    try:
        process = subprocess.run(
            [*command(name), url], cwd=ROOT, capture_output=True, text=True, timeout=CLIENT_S_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        return [CheckResult("run", str(error))]
    checks = [CheckResult(**json.loads(line)) for line in process.stdout.splitlines() if line.startswith('{"check"')]
    if process.returncode or not checks:
        checks.append(CheckResult("run", process.stderr or process.stdout))
    return checks


def models(folder: Path) -> list[str]:
    """The built-in model, and its copies under the names of other families. Without npm there are none."""
    for name in TEMPLATES:
        try:
            configuration = json.loads((bring(name) / "tokenizer_config.json").read_text(encoding="utf-8"))
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"npm cannot bring the chat template of {name}: {error}", flush=True)
            return [MODEL]
        shutil.copytree(BUILT_IN_MODEL, folder / name)
        (folder / name / "chat_template.jinja").write_text(configuration["chat_template"], encoding="utf-8")
    return [MODEL, *(str(folder / name) for name in TEMPLATES)]


def run(chosen: Sequence[str]) -> int:
    """Prints the result of each check. Returns 1 if one fails, 3 if none ran."""
    passed, failed, left_out = 0, 0, list[str]()
    with tempfile.TemporaryDirectory() as folder, serving(
        Path(folder), log_level="warning", timeout_s_default=REQUEST_S, model=",".join(models(Path(folder)))
    ) as service:
        service.wait_until_ready()
        for name in chosen:
            try:
                results = check_client(name, f"{service.url}/v1")
            except ClientUnavailable as reason:
                print(f"{name}: left out: {reason}", flush=True)
                left_out.append(name)
                continue
            for result in results:
                print(f"{name} {version(name)}: {result.check} {'fails' if result.error else 'passes'}", flush=True)
                if result.error:
                    print(result.error, flush=True)
            failed += sum(bool(result.error) for result in results)
            passed += sum(not result.error for result in results)
    print(f"{passed} checks passed, {failed} failed; left out: {', '.join(left_out) or 'no client'}")
    return 1 if failed else 0 if passed else NOT_RUN


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; default: all")
    sys.exit(run(parser.parse_args().names or names()))
