"""A program of a user, as mypy sees it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from typing import assert_type

from pydantic import BaseModel, TypeAdapter

from abs_client import (
    AsyncClient, AsyncJob, Client, CompileResult, Done, Event, F, GenerateResult, GenerateRow, Job, JsonSchema,
    Keywords, Step, Stream,
)


class Pet(BaseModel):
    kind: str


with Client() as client:
    result = client.generate("sentence:", F("dog") & Keywords("ball"), max_tokens=24, beams=8)
    assert_type(result, GenerateResult)
    assert_type(result.text, str)
    assert_type(result.choices[0].log_prob, float)
    assert_type(result.parse(Pet), Pet)
    assert_type(result.choices[0].parse(TypeAdapter(list[int])), list[int])
    assert_type(client.compile(JsonSchema(Pet)), CompileResult)
    assert_type(client.submit("a", F("dog")), Job[GenerateResult])
    assert_type(client.submit("a", F("dog")).result(), GenerateResult)
    rows = client.generate_rows(["a", "b"], [F("dog"), {"regex": "a"}], model="stories")
    assert_type(rows, list[GenerateRow])
    assert_type(rows[0]["log_prob"], float | None)
    with client.stream("a", F("dog")) as events:
        assert_type(events, Stream[GenerateResult])
        for event in events:
            assert_type(event, Event[GenerateResult])
            match event:
                case Step(rows=[best, *_]):
                    assert_type(best.text, str)
                case Done(result=final):
                    assert_type(final, GenerateResult)


async def several() -> None:
    async with AsyncClient() as client:
        assert_type(await client.generate("a", F("dog")), GenerateResult)
        assert_type(await client.submit("a", F("dog")), AsyncJob[GenerateResult])
        assert_type(await client.generate_rows(["a"], F("dog")), list[GenerateRow])
"""
MISTAKES = {  # a line, and what the checker says of it
    'client.generate("a", F("dog"), beems=3)': "beems",
    'client.generate("a", F("dog"), max_tokens="3")': "max_tokens",
    'client.generate("a", F("dog"), algorithm="bank")': "algorithm",
    'client.generate(3, F("dog"))': "Argument 1",
    'client.generate("a", F("dog")).txt': "txt",
    'client.generate_rows(["a"], F("dog"), concurrency="2")': "concurrency",
    'client.generate_rows(["a"], F("dog"))[0]["txt"]': "txt",
    'client.check(F("dog"), 3)': "Argument 2",
}


def checked(folder: Path, program: str) -> tuple[int, str]:
    """The exit status and the output of mypy."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    options = ("--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache'}")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(folder / "program.py")],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_program_of_a_user_is_typed_end_to_end(tmp_path: Path) -> None:
    assert checked(tmp_path, PROGRAM) == (0, "Success: no issues found in 1 source file\n")


def test_the_mistakes_of_a_program_are_found(tmp_path: Path) -> None:
    head = "from abs_client import Client, F\n\nclient = Client()\n"
    status, output = checked(tmp_path, head + "\n".join(MISTAKES) + "\n")
    assert status == 1
    for number, word in enumerate(MISTAKES.values(), head.count("\n") + 1):
        (line,) = [line for line in output.splitlines() if re.search(rf"program.py:{number}: error", line)]
        assert word in line
