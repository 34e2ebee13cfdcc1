"""Record the answers of some 400 requests and compare them.

A change of names and folders changes no answer.

    python -m tests.app.baseline --record FILE      write the answers of the present code
    python -m tests.app.baseline --compare FILE     exit with 1 if an answer differs
    python -m tests.app.baseline --sample --record tests/cases/baseline.json     the sample of a test

All requests run in one process, one after another, on the built-in model.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from starlette.testclient import TestClient

from app.settings import BUILT_IN_MODEL
from tests.app.conftest import service_client

CASES = Path(__file__).parents[1] / "cases"
RECORDING = CASES / "baseline.json"
SAMPLE = 7  # one request in SAMPLE is in the recording of the repository
VOLATILE = frozenset((
    "id", "job_id", "created", "request_id", "retry_after", "waited_s", "compile_ms", "timings", "version",
    "owned_by", "cached", "attempt", "system_fingerprint",
))  # fmt: skip
"""Fields that differ between two runs of the same code."""

CONSTRAINTS: dict[str, Any] = json.loads((CASES / "baseline_constraints.json").read_text(encoding="utf-8"))
TEXTS = ("a dog runs after a ball in the park.", "yes", '{"a": "x", "b": 3}')
PROMPTS = ("sentence:", "concepts: dog, ball, park\nsentence:")
LABELS = ["boot", "bag", "coat"]
LOG_PROBS = [[-0.1, -3.0, -3.0], [-2.0, -3.0, -0.2], [-1.0, -1.5, -1.2], [-0.5, -2.5, -1.0]]


class Call(NamedTuple):
    """One request; a string as `body` is sent raw."""

    name: str
    path: str
    body: Any
    method: str = "POST"


def calls() -> Iterator[Call]:
    """All requests, in the order in which they run."""
    for name, constraint in CONSTRAINTS.items():
        yield Call(f"compile, {name}", "/compile", {"constraint": constraint, "explain": True})
        for number, text in enumerate(TEXTS):
            yield Call(f"check, {name}, text {number}", "/check", {"constraint": constraint, "text": text})
        yield Call(f"generate, {name}", "/generate", _generate(constraint, beams=4, trace=True))
    yield from _searches()
    yield from _streams()
    yield from _decodings()
    yield from _openai()
    for file in ("bad_requests", "openai_requests"):
        for case in tomllib.loads((CASES / f"{file}.toml").read_text(encoding="utf-8"))["case"]:
            body = case.get("json", case.get("body"))
            if isinstance(body, str):
                chat = "chat/" if body.startswith('{"messages') else ""
                path = case.get("path", f"/v1/{chat}completions")
                yield Call(f"refused, {case['name']}", path, body)
    for path in ("/v1/models", "/health", "/automata/0", "/jobs/unknown"):
        yield Call(path, path, None, "GET")


def sample() -> list[Call]:
    """The requests of the recording in the repository."""
    return list(calls())[::SAMPLE]


def _generate(constraint: Mapping[str, Any], prompt: str = PROMPTS[0], **options: Any) -> dict[str, Any]:
    return {"prompt": prompt, "constraint": constraint, "max_tokens": 24, **options}


def _searches() -> Iterator[Call]:
    """Algorithms, beam widths, seeds and budgets."""
    for form in ("three keywords", "sentence", "record", "template", "in order", "all"):
        for beams in (1, 8, 24):
            for algorithm in ("banked", "abs"):
                options = {"beams": beams, "algorithm": algorithm, "n": 1 if beams == 1 else 2}
                body = _generate(CONSTRAINTS[form], PROMPTS[1], trace=beams == 1, **options)
                yield Call(f"{algorithm}, {beams} beams, {form}", "/generate", body)
        for seed in (1, 2**62):
            body = _generate(CONSTRAINTS[form], algorithm="sample", seed=seed, n=2, temperature=0.8, top_p=0.9)
            yield Call(f"sample, seed {seed}, {form}", "/generate", body)
    for penalty in (0.0, 1.0):
        body = _generate(CONSTRAINTS["one keyword"], length_penalty=penalty, n=3)
        yield Call(f"length penalty {penalty}", "/generate", body)
    for budget in (1, 5, 9):
        body = _generate(CONSTRAINTS["record"]) | {"max_tokens": budget}
        yield Call(f"a budget of {budget}", "/generate", body)
    body = _generate(CONSTRAINTS["ordered keywords"], "A man", scope="full")
    yield Call("prompt and answer together", "/generate", body)


def _streams() -> Iterator[Call]:
    for form in ("one keyword", "sentence", "record"):
        for algorithm in ("banked", "abs", "sample"):
            options = {"seed": 5} if algorithm == "sample" else {}
            body = _generate(CONSTRAINTS[form], algorithm=algorithm, stream=True, **options)
            yield Call(f"stream, {algorithm}, {form}", "/generate", body)


def _decodings() -> Iterator[Call]:
    for formula in ("F(bag)", "G(boot -> X(F(coat)))", "F(boot & X(bag))", "G(!boot) & G(!bag) & G(!coat)"):
        for beams in (None, 1, 4):
            body = {"labels": LABELS, "constraint": {"ltlf": formula}, "log_probs": LOG_PROBS}
            yield Call(f"decode, {formula}, {beams} beams", "/decode", body | ({"beams": beams} if beams else {}))


def _openai() -> Iterator[Call]:
    schema = {"type": "json_schema", "json_schema": {"name": "r", "schema": CONSTRAINTS["record"]["json_schema"]}}
    message = [{"role": "user", "content": "dog, ball"}]
    for stream in (False, True):
        for body in (
            {"prompt": PROMPTS[0], "regex": "[a-z ]{5,20}", "max_tokens": 16},
            {"prompt": PROMPTS[0], "guided_choice": ["yes", "no"], "max_tokens": 8, "temperature": 0},
            {"prompt": PROMPTS[0], "constraint": {"keywords": ["dog"]}, "max_tokens": 16, "logprobs": 1},
        ):
            yield Call(f"completion, {list(body)[1]}, {stream}", "/v1/completions", _openai_body(body, stream))
        for body in (
            {"messages": message, "response_format": schema, "max_tokens": 32},
            {"messages": message, "constraint": {"keywords": ["dog"]}, "max_tokens": 24, "seed": 3, "temperature": 1},
        ):
            yield Call(f"chat, {list(body)[1]}, {stream}", "/v1/chat/completions", _openai_body(body, stream))


def _openai_body(body: Mapping[str, Any], stream: bool) -> dict[str, Any]:
    return {"model": "captions", **body} | ({"stream": True} if stream else {})


def scrubbed(value: Any) -> Any:
    """A JSON value without the fields that differ from run to run."""
    if isinstance(value, Mapping):
        return {key: scrubbed(part) for key, part in value.items() if key not in VOLATILE}
    return [scrubbed(part) for part in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def answer(client: TestClient, call: Call) -> dict[str, Any]:
    """Status and body of an answer.

    For a stream: the names of its events, its text, and the last event with JSON.
    """
    content = None if call.body is None else call.body if isinstance(call.body, str) else json.dumps(call.body)
    reply = client.request(call.method, call.path, content=content, headers={"Content-Type": "application/json"})
    media_type = reply.headers.get("content-type", "")
    if media_type.startswith("text/event-stream"):
        fields = [line.partition(": ")[::2] for line in reply.text.splitlines()]
        data = [json.loads(text) for name, text in fields if name == "data" and text.startswith("{")]
        event_names = sorted({text for name, text in fields if name == "event"})
        text = "".join(_event_text(part) for event in data for part in event.get("choices") or ())
        return {"status": reply.status_code, "events": event_names, "text": text, "last": scrubbed(data[-1])}
    body = scrubbed(reply.json()) if "json" in media_type else reply.text
    return {"status": reply.status_code, "body": body}


def _event_text(choice: Mapping[str, Any]) -> str:
    """The text that an event of an OpenAI stream appends."""
    return (choice.get("delta") or {}).get("content") or choice.get("text") or ""


def answers(calls: Sequence[Call]) -> dict[str, dict[str, Any]]:
    """The answers of the present code, keyed by request name."""
    with service_client(model=BUILT_IN_MODEL) as client:
        return {call.name: answer(client, call) for call in calls}


def read_recording(file: Path) -> dict[str, dict[str, Any]]:
    """The answers that `--record` wrote."""
    recorded: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return recorded


def differences(before: Any, after: Any, tolerance: float, path: str = "") -> Iterator[str]:
    """One line for each difference; numbers may differ by the tolerance."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from differences(before.get(key), after.get(key), tolerance, f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, tolerance, f"{path}/{index}")
    elif isinstance(before, float) and isinstance(after, float | int):
        if abs(before - after) > tolerance:
            yield f"{path}: {after} instead of {before}"
    elif before != after:
        yield f"{path}: {after!r:.200} instead of {before!r:.200}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.0, help="of log-probs, in nats")
    parser.add_argument("--sample", action="store_true", help="the requests of the recording in the repository alone")
    args = parser.parse_args()
    results = answers(sample() if args.sample else list(calls()))
    if args.record:
        args.record.write_text(json.dumps(results, indent=0) + "\n", encoding="utf-8")
        print(f"{len(results)} answers recorded")
    if args.compare:
        recorded = read_recording(args.compare)
        lines = list(differences(recorded, results, args.tolerance))
        print("\n".join([*lines, f"{len(results)} answers compared, {len(lines)} differences"]))
        raise SystemExit(1 if lines else 0)


if __name__ == "__main__":
    main()
