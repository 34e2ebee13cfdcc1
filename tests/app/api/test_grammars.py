"""Grammars from request to answer. Parsers of others judge the texts."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from lark import Lark
from lark.exceptions import LarkError

from tests.app.event_stream import events
from tests.servers.redis_server import RedisServer
from tests.servers.service_process import ServiceProcess, serving
from tests.servers.small_model import small_model

S_MAX = 120
JSON_GRAMMAR = r'''
?start: value
?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
%import common (ESCAPED_STRING, SIGNED_NUMBER, WS)
%ignore WS
'''
SENTENCES = '''
start: clause ("," " and " clause)* "."
clause: noun " " VERB " " noun
noun: ("a" | "the") " " ("small " | "big ")* ("dog" | "man" | "girl") (" with " noun)?
VERB: /(runs|looks|walks) (to|after)/
'''
SUMS = 'root ::= term ("+" term)*\nterm ::= "(" root ")" | [1-9] [0-9]*'
PAIRS = "tree = name | '<', tree, '>', tree; name = 'dog' | 'cat';"
NUMBERS_ONCE = 'root ::= "[" (item ("," item)*)? "]"\nitem ::= [1-9] [0-9]* | root'


def read_by_lark(grammar: str) -> Callable[[str], bool]:
    parser = Lark(grammar, ambiguity="resolve")

    def reads(text: str) -> bool:
        try:
            return bool(parser.parse(text))
        except LarkError:
            return False

    return reads


def is_json(text: str) -> bool:
    try:
        json.loads(text)
        return True
    except ValueError:
        return False


def is_sum(text: str) -> bool:
    try:
        return re.fullmatch(r"[0-9+()]+", text) is not None and bool(ast.parse(text, mode="eval"))
    except SyntaxError:
        return False


def is_tree(text: str) -> bool:
    while (shorter := re.sub(r"<(dog|cat)>(dog|cat)", "dog", text)) != text:
        text = shorter
    return text in ("dog", "cat")


class Case(NamedTuple):
    """A constraint. `holds` is a parser of others for its texts, and `wrong` is none of them.

    beside  what has to hold beside the grammar; without syntax, `grammar` is a JSON schema
    """

    syntax: str
    grammar: str
    holds: Callable[[str], bool]
    wrong: str
    beside: tuple[dict[str, Any], ...] = ()


CASES = {
    "JSON": Case("lark", JSON_GRAMMAR, read_by_lark(JSON_GRAMMAR), '{"a": [1, }'),
    "sentences": Case("lark", SENTENCES, read_by_lark(SENTENCES), "a dog runs to the."),
    "sums": Case("gbnf", SUMS, is_sum, "(1+2))"),
    "trees": Case("ebnf", PAIRS, is_tree, "<dog>>cat"),
    "lists": Case("gbnf", NUMBERS_ONCE, is_json, "[1,2"),
}
COMBINED = {
    "sums with bounds": Case(
        "gbnf", SUMS, lambda text: is_sum(text) and "12" in text and len(text) <= 14, "(1+2)",
        ({"regex": ".*12.*"}, {"max_chars": 14}),
    ),
    "sentences with words": Case(
        "lark", SENTENCES, lambda text: read_by_lark(SENTENCES)(text) and "girl" in re.findall(r"\w+", text),
        "a dog runs to the man.", ({"keywords": ["girl"]}, {"ltlf": "G(small -> X(dog | girl))"}),
    ),
    "JSON with words": Case(
        "", "{}", lambda text: is_json(text) and "dog" in re.findall(r"\w+", text) and "[[" not in text, '[[["dog"]]]',
        ({"keywords": ["dog"]}, {"not": {"regex": r"(?s:.*)\[\[(?s:.*)"}}),
    ),
}  # fmt: skip
ALGORITHMS: list[dict[str, Any]] = [
    {"algorithm": "banked", "beams": 4, "n": 2}, {"algorithm": "abs", "beams": 4},
    {"algorithm": "sample", "seed": 3, "n": 3, "temperature": 1.0},
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, shared_redis_server: RedisServer) -> Iterator[ServiceProcess]:
    """A service whose store and jobs are on a real Redis."""
    url = shared_redis_server.url
    settings = {"store": url, "broker": url, "model": small_model(), "OMP_NUM_THREADS": 1}
    with serving(tmp_path_factory.mktemp("service"), **settings) as process:
        process.wait_until_ready()
        yield process


@pytest.fixture(scope="module")
def http(service: ServiceProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.url, timeout=S_MAX) as client:
        yield client


def constraint_of(case: Case) -> dict[str, Any]:
    if case.syntax:
        whole: dict[str, Any] = {"grammar": case.grammar, "syntax": case.syntax}
    else:
        whole = {"json_schema": json.loads(case.grammar)}
    return {"all": [whole, *case.beside]} if case.beside else whole


def post(http: httpx2.Client, path: str, **body: Any) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("options", ALGORITHMS, ids=lambda options: str(options["algorithm"]))
@pytest.mark.parametrize("name", [*CASES, *COMBINED])
@pytest.mark.sample(9)
def test_answers_of_each_budget_are_in_the_language(http: httpx2.Client, name: str, options: dict[str, Any]) -> None:
    case = {**CASES, **COMBINED}[name]
    least = post(http, "/compile", constraint=constraint_of(case))["min_tokens"]
    body = {"prompt": "sentence:", "constraint": constraint_of(case), "trace": True, **options}
    for budget in (least, least + 1, 2 * least + 3, 40):
        for choice in post(http, "/generate", **body, max_tokens=budget)["choices"]:
            assert case.holds(choice["text"]), choice["text"]
            distances = [step["distance"] for step in choice["trace"]]
            assert len(distances) <= budget and distances[-1] == 0
            assert all(left <= budget - at for at, left in enumerate(distances, 1))
    refused = http.post("/generate", json={**body, "max_tokens": least - 1})
    assert refused.status_code == 422
    assert (refused.json()["code"], refused.json()["min_tokens"]) == ("budget_too_small", least)


@pytest.mark.parametrize("name", CASES)
def test_a_stream_shows_each_step_of_a_grammar(http: httpx2.Client, name: str) -> None:
    case = CASES[name]
    prompt = "json {" if name == "JSON" else "sentence:"  # no answer may begin with a space, whose state is hidden
    body = {"prompt": prompt, "constraint": constraint_of(case), "max_tokens": 24, "beams": 4, "trace": True}
    plain = post(http, "/generate", **body)["choices"]
    with http.stream("POST", "/generate", json={**body, "stream": True, "rejected_top_k": 5}) as response:
        received = list(events(response.iter_lines()))
    assert [received[0].name, received[-1].name] == ["compiled", "done"]
    assert received[-1].data["choices"] == plain and case.holds(plain[0]["text"])
    steps = [event.data for event in received if event.name == "step"]
    states = {(row["text"].strip(), row["state"]) for step in steps for row in step["rows"] if not row["finished"]}
    trace, text = plain[0]["trace"], ""
    for step in trace[:-1]:
        text += step["text"]
        assert (text.strip(), step["state"]) in states
    rejected = [token for step in steps for token in step["rejected_tokens"]]
    assert {token["reason"] for token in rejected} >= {"violates"}


@pytest.mark.parametrize("name", [*CASES, *COMBINED])
@pytest.mark.sample(4)
def test_a_check_agrees_with_the_other_parser(http: httpx2.Client, name: str) -> None:
    case = {**CASES, **COMBINED}[name]
    body = {"prompt": "sentence:", "constraint": constraint_of(case), "max_tokens": 30, "algorithm": "sample", "n": 4}
    texts = [choice["text"] for choice in post(http, "/generate", **body, seed=1)["choices"]]
    for text in (*texts, *(each[:-1] for each in texts), case.wrong):
        answer = post(http, "/check", constraint=constraint_of(case), text=text)
        assert answer["satisfied"] == case.holds(text), text
        assert (answer["violated_at"] is None) == answer["satisfied"]
    assert not case.holds(case.wrong)


def test_an_answer_of_a_grammar_holds_no_stop_string(http: httpx2.Client) -> None:
    body = {"prompt": "sentence:", "grammar": SUMS, "stop": ["1", "+2"], "max_tokens": 20, "temperature": 1, "n": 4}
    for choice in post(http, "/v1/completions", **body, seed=5)["choices"]:
        assert is_sum(choice["text"]) and not re.search(r"1|\+2", choice["text"]), choice["text"]


def test_answers_do_not_depend_on_the_batch(http: httpx2.Client) -> None:
    bodies = [
        {"prompt": "sentence:", "constraint": constraint, "max_tokens": 20, "trace": True, **options}
        for constraint in (*map(constraint_of, CASES.values()), {"keywords": ["dog"]})
        for options in ALGORITHMS
    ]  # fmt: skip
    alone = [post(http, "/generate", **body)["choices"] for body in bodies]
    with ThreadPoolExecutor(len(bodies)) as threads:
        together = list(threads.map(lambda body: post(http, "/generate", **body)["choices"], bodies))
    assert together == alone


def test_a_prompt_may_begin_the_text_of_a_grammar(http: httpx2.Client) -> None:
    constraint = constraint_of(CASES["JSON"])
    prompt = '{"a": [[[{"b": '
    body = {"prompt": prompt, "constraint": constraint, "scope": "full"}
    refused = http.post("/generate", json={**body, "max_tokens": 2}).json()
    least = refused["min_tokens"]
    for budget in (least, least + 6):
        for choice in post(http, "/generate", **body, max_tokens=budget, n=2, beams=4)["choices"]:
            assert CASES["JSON"].holds(prompt + choice["text"]), choice["text"]
    wrong = http.post("/generate", json={**body, "prompt": '[1, 2]] "'})
    assert (wrong.status_code, wrong.json()["code"], wrong.json()["position"]) == (422, "prompt_violates", 6)


def test_probable_mistakes_are_warned_of(http: httpx2.Client) -> None:
    grammar = 'root ::= "a" | b | "a"\nb ::= "b"\nspare ::= "c"'
    for _ in range(2):  # the second answer comes from the store
        answer = post(http, "/compile", constraint={"grammar": grammar, "syntax": "gbnf"})
        assert [(warning["line"], warning["column"]) for warning in answer["warnings"]] == [(1, 20), (3, 1)]
        assert answer["explanation"]["shortest"] in ("a", "b")
    assert "warnings" not in post(http, "/compile", constraint={"regex": "a"})


def test_a_grammar_has_no_picture(http: httpx2.Client) -> None:
    constraint = constraint_of(CASES["sums"])
    automaton = post(http, "/compile", constraint=constraint)["automaton"]
    for path in (f"/automata/{automaton}", f"/automata/{automaton}.svg", f"/automata/{automaton}.dot"):
        answer = http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (422, "unsupported"), answer.text
    assert post(http, "/generate", prompt="sentence:", automaton=automaton, max_tokens=9)["choices"]


def test_a_text_that_takes_too_many_steps_is_refused(http: httpx2.Client) -> None:
    ambiguous = {"grammar": 'root ::= root root root | root root | "a"', "syntax": "gbnf"}
    refused = http.post("/check", json={"constraint": ambiguous, "text": "a" * 30_000})
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["limit"]) == (422, "constraint_too_large", "check_steps_max")
    assert post(http, "/check", constraint=ambiguous, text="a" * 30)["satisfied"]


def test_equal_grammars_are_compiled_once(http: httpx2.Client) -> None:
    answers = [post(http, "/compile", constraint={"grammar": SUMS, "syntax": "gbnf", **more})
               for more in ({}, {"leading_space": "strip"}, {"leading_space": "forbid"})]  # fmt: skip
    hashes = [answer["automaton"] for answer in answers]
    assert hashes[0] == hashes[1] != hashes[2]
    assert post(http, "/compile", constraint={"grammar": SUMS, "syntax": "ebnf"})["automaton"] not in hashes


def test_one_reading_of_an_ambiguous_text_is_enough(tmp_path: Path) -> None:
    grammar = 'root ::= root root | "a" root "b" | "a " | "b "'
    constraint = {"grammar": grammar, "syntax": "gbnf"}
    with serving(tmp_path, grammar_readings_max=1, model=small_model(), OMP_NUM_THREADS=1) as process:
        process.wait_until_ready()
        with httpx2.Client(base_url=process.url, timeout=S_MAX) as http:
            least = post(http, "/compile", constraint=constraint)["min_tokens"]
            for budget in (least, least + 3, 20):
                body = {"prompt": "sentence:", "constraint": constraint, "max_tokens": budget, "beams": 4}
                for choice in post(http, "/generate", **body)["choices"]:
                    assert post(http, "/check", constraint=constraint, text=choice["text"])["satisfied"]
