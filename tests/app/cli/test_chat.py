"""Conversations in the terminal: history, constraints, tools, errors and exit statuses."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from abs_client import AsyncClient
from app.cli.chat import BackgroundClient
from app.cli.sender import Sender
from app.main import create_app
from app.settings import QUEUES
from tests.app.cli.conftest import Command
from tests.app.cli.test_commands import abs_command

TOOLS = [
    {"type": "function", "function": {"name": "refund", "parameters": {
        "type": "object", "properties": {"amount": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["amount"], "additionalProperties": False,
    }}},
    {"type": "function", "function": {"name": "notify"}},
]  # fmt: skip


class Chat:
    """Runs `abs chat` with these lines as its input."""

    def __init__(self, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        self._command, self._monkeypatch = command, monkeypatch
        self.sent: list[Any] = []  # the messages of each request
        stream = AsyncClient.stream

        def recorded(client: AsyncClient, prompt: Any, *arguments: Any, **options: Any) -> Any:
            self.sent.append(prompt)
            return stream(client, prompt, *arguments, **options)

        monkeypatch.setattr(AsyncClient, "stream", recorded)

    def __call__(self, lines: str, *arguments: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return self._command("chat", *arguments)


@pytest.fixture
def chat(command: Command, monkeypatch: pytest.MonkeyPatch) -> Chat:
    return Chat(command, monkeypatch)


def test_each_answer_keeps_the_constraint_and_the_history_grows(chat: Chat) -> None:
    constraint = json.dumps({"all": [{"keywords": ["dog"]}, {"max_words": 6}]})
    status, output, _ = chat(
        "Hello\n\nAgain\n", "--constraint", constraint, "--max-tokens", "16", "--system", "Be brief."
    )
    answers = output.splitlines()
    assert status == 0 and len(answers) == 2
    assert all(re.search(r"\bdog\b", answer) and len(answer.split()) <= 6 for answer in answers)
    assert [[message["role"] for message in messages] for messages in chat.sent] == [
        ["system", "user"], ["system", "user", "assistant", "user"]
    ]  # fmt: skip
    assert chat.sent[1][2]["content"].strip() == answers[0]


def test_calls_keep_the_rules_and_take_their_results(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
    rules = ("--rule", "init(refund)", "--rule", "chain_response(result(refund), notify)")
    status, output, errors = chat(
        "My parcel is lost.\ndone\n", "--tools", str(tmp_path / "tools.json"), *rules, "--max-tokens", "60"
    )
    assert status == 0, errors
    first, second = output.splitlines()[:2]
    assert re.fullmatch(r'calls refund\(\{"amount": ?\d\}\)', first) and second.startswith("calls notify(")
    call = chat.sent[1][1]["tool_calls"][0]
    assert chat.sent[1][-1] == {"role": "tool", "tool_call_id": call["id"], "content": "done"}


def test_a_refused_line_leaves_no_message(chat: Chat) -> None:
    status, output, errors = chat("a\nb\n", "--regex", "a{40}", "--max-tokens", "2")
    assert (status, output) == (3, "") and errors.count("budget_too_small") == 2
    assert chat.sent == [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]]


def test_a_conversation_needs_neither_constraint_nor_tools(chat: Chat) -> None:
    assert chat("Hello\n", "--max-tokens", "8")[0] == 0
    assert chat("")[:2] == (0, "")


@pytest.mark.parametrize(
    ("file", "message"), [("{}", "must have a list"), ("[", "tools.json"), ('[{"type": "x"}]', "tools.0")]
)
def test_faulty_tools_are_a_usage_error(chat: Chat, tmp_path: Path, file: str, message: str) -> None:
    (tmp_path / "tools.json").write_text(file, encoding="utf-8")
    status, _, errors = chat("a\n", "--tools", str(tmp_path / "tools.json"))
    shown = re.sub(r"[\s│]", "", errors)  # the box breaks a long path anywhere
    assert status == 2 and message.replace(" ", "") in shown


def test_a_conversation_runs_in_this_process_too() -> None:
    result = abs_command("chat", "--keyword", "dog", "--max-tokens", "12", stdin="Hello\n")
    assert result.returncode == 0, result.stderr
    assert re.search(r"\bdog\b", result.stdout)


def test_a_service_that_is_away_is_reported() -> None:
    result = abs_command("chat", "--keyword", "dog", "--url", "http://127.0.0.1:9", stdin="Hello\n")
    assert result.returncode == 4 and result.stderr.startswith("abs: ")


class LoadingSender(Sender):
    """Sends an interrupt while the model loads."""

    @asynccontextmanager
    async def client(self, *_: object) -> AsyncIterator[AsyncClient]:
        await asyncio.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.sleep(5)
        raise AssertionError("the interrupt did not end the loading")
        yield AsyncClient()


def test_an_interrupt_ends_the_loading_of_the_model() -> None:
    client = BackgroundClient(LoadingSender(create_app, None, None, QUEUES, as_json=False))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell may ignore SIGINT
    try:
        with pytest.raises(KeyboardInterrupt), client:
            pass
    finally:
        signal.signal(signal.SIGINT, handler)
    assert "client" not in [thread.name for thread in threading.enumerate()]
