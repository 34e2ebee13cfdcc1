from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.main import _listen
from app.settings import Settings
from docs.tools.pages import DOCS
from tests.app.cli.conftest import Command, exit_status
from tests.servers.forkserver import run_process
from tests.servers.service_process import ServiceProcess, serving

S_MAX = 120.0
HASH = "0" * 64


def abs_command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_process(["app.main", *arguments], os.environ, S_MAX, stdin)


def test_a_response_body_does_not_wait_for_an_acknowledgement() -> None:
    with (
        _listen(Settings.of(port=0)) as listener, socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_generate_prints_the_json_of_the_api() -> None:
    keywords = ("--keyword", "dog,dogs", "--keyword", "ball", "--ordered")
    result = abs_command("generate", "sentence:", *keywords, "--max-tokens", "16", "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["choices"][0]["satisfied"] and answer["model"] == "captions"
    assert answer["choices"][0]["trace"] is None


def test_generate_with_stream_prints_progress(command: Command) -> None:
    def output_of(*arguments: str) -> str:
        status, output, _ = command("generate", *arguments, "--keyword", "dog")
        assert status == 0
        return output

    options = ("--algorithm", "sample", "--seed", "5", "--temperature", "0.5", "--stream", "--max-tokens", "16")
    sample_output = output_of("sentence:", *options)
    assert "satisfied: yes" in sample_output and "seed 5" in sample_output
    stream_output = output_of("a do", "--scope", "full", "--stream", "--json")
    output = output_of("a do", "--scope", "full", "--json")
    assert json.loads(stream_output)["choices"] == json.loads(output)["choices"]


def test_generate_excludes_stop_strings(command: Command) -> None:
    arguments = ("sentence:", "--keyword", "dog", "--stop", "a ", "--stop", "s", "--max-tokens", "16", "--json")
    status, output, _ = command("generate", *arguments)
    text = json.loads(output)["choices"][0]["text"]
    assert status == 0
    assert "dog" in text.lower() and "a " not in text and "s" not in text


def test_generate_shows_text_tokens_words_and_distances(command: Command) -> None:
    options = ("--ltlf", "F(pet)", "--prop", "pet=dog,cat", "--max-tokens", "16")
    status, output, _ = command("generate", "sentence:", *options)
    assert status == 0 and all(part in output for part in ("tokens:", "distances:", "pet", "satisfied: yes", "total"))


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("check", "a dog", "--ltlf", "F(dog)"), 0),
        (("check", "a cat", "--ltlf", "F(dog)"), 3),
        (("check", "a cat", "--ltlf", "F(dog"), 2),
        (("check", "a cat"), 2),
        (("check", "a cat", "--ltlf", "F(dog)", "--regex", "a"), 2),
        (("check", "a cat", "--regex", "a", "--ordered"), 2),
        (("check", "a cat", "--constraint", "{"), 2),
        (("check", "a cat", "--constraint", '{"regex": "a cat"}'), 0),
        (("check", "a cat", "--constraint", '{"grammar": "a"}'), 2),
        (("compile", "--regex", "a|b"), 0),
        (("check", "dog", "--ltlf", 'F("[/bold]")', "--prop", "[/bold]=dog"), 0),
        (("compile", "--ltlf", "a & !a"), 3),
        (("compile", "--regex", "(a)\\1"), 2),
        (("compile", "--regex", "a", "--url", "http://127.0.0.1:9"), 4),
        (("compile", "--regex", "a", "--url", "http://[::1"), 4),
        (("check", "x", "--constraint", '{"regex": NaN}'), 2),
        (("check", "x", "--constraint", '{"regex": "\\ud800"}'), 2),
        (("check", "x", "--constraint", '{"regex": "a", "regex": "x"}'), 2),
        (("check", "\udcff", "--regex", "a"), 2),
        (("check", "x", "--regex", "\udcff"), 2),
        (("check", "x", "--ltlf", "F(p)", "--prop", "p=x", "--prop", "p=y"), 2),
        (("generate", "x", "--ltlf", "F(dog)", "--alpha-min", "nan"), 2),
        (("generate", "x", "--ltlf", "F(dog)", "--gamma", "inf"), 2),
        (("generate", "x", "--ltlf", "F(dog)", "--timeout-s", "-inf"), 2),
        (("generate", "x", "--ltlf", "F(dog)", "--length-penalty", "nan"), 2),
        (("generate", "x", "--ltlf", "F(dog", "--stream"), 2),
        (("generate", "x", "--ltlf", "F(dog)", "--url", "http://127.0.0.1:9", "--stream"), 4),
        (("generate", "x", "--automaton", HASH), 2),
        (("generate", "x", "--automaton", HASH, "--ltlf", "F(dog)", "--url", "http://127.0.0.1:9"), 2),
        (("generate", "x", "--automaton", HASH, "--ordered", "--url", "http://127.0.0.1:9"), 2),
        (("generate", "x", "--automaton", HASH, "--url", "http://127.0.0.1:9"), 4),
        (("no-such-command",), 2),
    ],
)
def test_the_exit_status_reflects_the_outcome(
    running_service: ServiceProcess, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], status: int
) -> None:
    url_options = () if "--url" in arguments or HASH in arguments else ("--url", running_service.url)
    assert exit_status(monkeypatch, *arguments, *url_options) == status


COMMANDS = re.findall(
    r"^\| `abs ([a-z]+(?: [a-z]+)?)", (DOCS / "command-line.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(monkeypatch, *command.split(), "--help") == 0
    usage, example = capsys.readouterr().out.strip().partition("\n")[::2]
    assert f"abs {command} " in usage
    assert re.search(rf"^ (.* )?abs {command}", example, re.MULTILINE), example


def test_all_commands_are_documented(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(monkeypatch, "--help") == 0
    listed = re.findall(r"^│ (\w+) ", capsys.readouterr().out.partition(" Commands ")[2], re.MULTILINE)
    assert set(listed) == {command.split()[0] for command in COMMANDS}


def test_an_invalid_setting_exits_with_the_service_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABS_BEAMS_MAX", "many")
    assert exit_status(monkeypatch, "compile", "--regex", "a") == 4


def test_an_error_is_printed_as_api_json(command: Command) -> None:
    status, output, _ = command("compile", "--ltlf", "F(dog &", "--json")
    problem = json.loads(output)
    assert (status, problem["code"], problem["position"]) == (2, "constraint_syntax", 7)


def test_a_syntax_error_is_pointed_at(command: Command) -> None:
    _, _, errors = command("compile", "--ltlf", "F(dog) &\n& F(cat)")
    lines = errors.splitlines()
    caret = next(number for number, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret - 1] == "  & F(cat)"
    assert lines[caret].index("^") == 2


def test_a_grammar_is_read_from_a_file(command: Command, tmp_path: Path) -> None:
    good, bad, odd = tmp_path / "lists.gbnf", tmp_path / "lists.lark", tmp_path / "lists.txt"
    good.write_text('root ::= "[" root* "]" | "a"\nspare ::= "b"', encoding="utf-8")
    bad.write_text('start: "[" start* "]"\n  | item', encoding="utf-8")
    odd.write_bytes(b"\xff")
    assert command("check", "[a[]]", "--grammar", str(good))[0] == 0
    assert command("check", "[a[]", "--grammar", str(good))[0] == 3
    status, output, _ = command("compile", "--grammar", str(good))
    assert status == 0 and "warning, line 2, column 1: the rule spare is not used" in output
    status, _, errors = command("generate", "sentence:", "--grammar", str(bad))
    assert status == 2
    lines = errors.splitlines()
    caret = next(number for number, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret - 1] == "    | item" and lines[caret].index("^") == 6
    for file in (odd, tmp_path / "none.gbnf", tmp_path):
        assert command("compile", "--grammar", str(file))[0] == 2
    assert command("compile", "--grammar", str(good), "--regex", "a")[0] == 2


def test_where_a_text_breaks_its_constraint_is_pointed_at(command: Command) -> None:
    _, output, _ = command("check", "A dog.\nA cat's toy", "--ltlf", "G(!cat)")
    lines = output.splitlines()
    assert "the text violates the constraint at character 13:" in lines
    assert [line.rstrip() for line in lines[-2:]] == ["  A cat's toy", "       ^"]


def test_a_text_is_read_from_standard_input(running_service: ServiceProcess) -> None:
    result = abs_command("check", "-", "--regex", "a+\\n", "--json", "--url", running_service.url, stdin="aaa\n")
    assert (result.returncode, json.loads(result.stdout)["satisfied"]) == (0, True)


def test_standard_input_that_is_not_text_is_refused() -> None:
    command = [sys.executable, "-m", "app.main", "check", "-", "--regex", "a+"]
    result = subprocess.run(command, capture_output=True, input=b"\xff", timeout=S_MAX)
    assert result.returncode == 2
    assert b"not UTF-8" in result.stderr and b"Traceback" not in result.stderr


@pytest.fixture
def served_url(tmp_path: Path) -> Iterator[str]:
    """The URL of a service without workers on the IPv6 loopback."""
    with serving(tmp_path, "--host", "::1", embedded_workers="") as service:
        yield service.url


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_the_model_option_is_sent_to_a_running_service(
    served_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert served_url.startswith("http://[::1]:")
    for command in (("generate", "a"), ("compile",)):
        arguments = (*command, "--regex", "a", "--url", served_url, "--json", "--model")
        assert exit_status(monkeypatch, *arguments, "nosuch") == 2
        assert json.loads(capsys.readouterr().out)["code"] == "unknown_model"
        assert exit_status(monkeypatch, *arguments, "captions") == 4
        assert json.loads(capsys.readouterr().out)["code"] == "not_ready"


def test_serve_reports_errors_before_it_binds_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = {"ABS_BROKER": "carrier-pigeon://", "ABS_STORE": "shoe-box", "ABS_MODEL": "/no/such/folder"}
    for variable, value in faults.items():
        monkeypatch.setenv(variable, value)
        result = abs_command("serve", "--port", "0")
        monkeypatch.delenv(variable)
        assert result.returncode == 4
        assert variable in result.stderr
        assert "listening" not in result.stdout


def test_a_missing_library_error_names_the_extra_to_install(tmp_path: Path) -> None:
    # The first statement makes the import fail. One process runs both commands, because it imports the whole API.
    code = """
import sys
sys.modules["redis"] = None
from app.main import main
for arguments in (["worker", "compile"], ["serve", "--port", "0"]):
    sys.argv = ["abs", *arguments]
    try:
        status = main()
    except SystemExit as error:
        status = error.code
    print("status", status, file=sys.stderr)
"""
    redis = {"ABS_BROKER": "redis://127.0.0.1:1/0", "ABS_STORE": "redis://127.0.0.1:1/0", "ABS_SECRET": "s" * 20}
    command, environment = [sys.executable, "-c", code], os.environ | redis
    result = subprocess.run(command, capture_output=True, text=True, timeout=S_MAX, env=environment, cwd=tmp_path)
    for arguments, message in zip(("worker", "serve"), result.stderr.split("status 4\n"), strict=False):
        message = " ".join(message.split())
        assert "redis" in message and "pip install 'abs-server[redis]'" in message, (arguments, result.stderr)
    assert result.stderr.count("status 4\n") == 2 and "Traceback" not in result.stderr
