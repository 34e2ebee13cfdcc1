from __future__ import annotations

import json
import subprocess
import sys

import pytest

from app.cli import run
from app.main import create_app

S_MAX = 120.0


def abs_command(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=S_MAX)


def here(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The command's exit status, run in this process."""
    monkeypatch.setattr(sys, "argv", ["abs", *arguments])
    try:
        return run(create_app)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0


def test_generate_prints_the_api_s_json() -> None:
    keywords = ("--keyword", "dog,dogs", "--keyword", "ball", "--ordered")
    ended = abs_command("generate", "sentence:", *keywords, "--max-tokens", "16", "--json")
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["choices"][0]["satisfied"] and answer["model"] == "captions"
    assert answer["choices"][0]["trace"] is None


def test_generate_shows_the_text_its_tokens_its_words_and_its_distances() -> None:
    ended = abs_command("generate", "sentence:", "--ltlf", "F(pet)", "--prop", "pet=dog,cat", "--max-tokens", "16")
    assert ended.returncode == 0, ended.stderr
    assert all(part in ended.stdout for part in ("tokens:", "distances:", "pet", "satisfied: yes", "total"))


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
        (("compile", "--ltlf", "a & !a"), 3),
        (("compile", "--regex", "(?=a)"), 2),
        (("compile", "--regex", "a", "--url", "http://127.0.0.1:9"), 4),
        (("no-such-command",), 2),
    ],
)
def test_the_exit_status_says_how_it_went(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], status: int
) -> None:
    assert here(monkeypatch, *arguments) == status


def test_a_faulty_setting_is_trouble_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABS_BEAMS_MAX", "many")
    assert here(monkeypatch, "compile", "--regex", "a") == 4


def test_an_error_is_the_api_s_json_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert here(monkeypatch, "compile", "--ltlf", "F(dog &", "--json") == 2
    problem = json.loads(capsys.readouterr().out)
    assert (problem["code"], problem["position"]) == ("constraint_syntax", 7)


def test_a_syntax_error_is_pointed_at(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    here(monkeypatch, "compile", "--ltlf", "F(dog) &\n& F(cat)")
    lines = capsys.readouterr().err.splitlines()
    caret = next(number for number, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret - 1] == "  & F(cat)"
    assert lines[caret].index("^") == 2


def test_a_text_is_read_from_standard_input() -> None:
    ended = abs_command("check", "-", "--regex", "a+\\n", "--json", stdin="aaa\n")
    assert (ended.returncode, json.loads(ended.stdout)["satisfied"]) == (0, True)


def test_the_demo_answers_its_three_requests_and_stops() -> None:
    ended = abs_command("demo")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("satisfied: yes") == 3
    assert ended.stdout.count("distances:") == 3
    assert "stopped" in ended.stdout


def test_serve_says_what_is_wrong_before_it_takes_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = {"ABS_BROKER": "carrier-pigeon://", "ABS_STORE": "shoe-box", "ABS_MODEL": "/no/such/folder"}
    for variable, value in faults.items():
        monkeypatch.setenv(variable, value)
        ended = abs_command("serve", "--port", "0")
        monkeypatch.delenv(variable)
        assert ended.returncode == 4
        assert variable in ended.stderr
        assert "listening" not in ended.stdout
