from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import anyio.to_thread
import pytest
from starlette.testclient import TestClient

from app.errors import JobFailed
from app.main import create_app
from app.settings import Settings
from decoding.errors import ModelUnavailable
from tests.app.conftest import service_client
from tests.servers.processes import until

ORDERED = {"ltlf": "(!cat & !toy) U (coffee & X(!toy U (cat & X(F(toy)))))"}
CLOCK = {"regex": r"[A-Z][a-z]+( [a-z]+){3,9} at [1-9]:[0-5][0-9] [ap]m\."}
KEYWORDS = {"keywords": ["dog", ["catch", "catches"]], "ordered": True}
UNIT = re.compile(r"\w+|[^\w\s]")


def generate(client: TestClient, constraint: dict[str, Any], **options: Any) -> dict[str, Any]:
    body = {"prompt": "sentence:", "constraint": constraint, "max_tokens": 24, "beams": 8, **options}
    response = client.post("/generate", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def compiled(client: TestClient, constraint: dict[str, Any]) -> dict[str, Any]:
    return dict(client.post("/compile", json={"constraint": constraint}).json())


def automaton_of(client: TestClient, constraint: dict[str, Any]) -> dict[str, Any]:
    """The automaton of a constraint."""
    return dict(client.get(f"/automata/{compiled(client, constraint)['automaton']}").json())


def picture_texts(svg: str) -> set[str | None]:
    return {node.text for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("}text")}


def test_an_ordered_formula_is_met_and_every_figure_adds_up(client: TestClient) -> None:
    answer = generate(client, ORDERED, trace=True)
    choice = answer["choices"][0]
    units = [unit.lower() for unit in UNIT.findall(choice["text"])]
    assert units.index("coffee") < units.index("cat") < units.index("toy")
    assert (choice["satisfied"], choice["finish_reason"]) == (True, "eos")
    assert [word["text"].lower() for word in choice["words"]] == units
    assert [word["text"] for word in choice["words"] if word["propositions"] == ["coffee"]]
    trace = choice["trace"]
    assert "".join(step["text"] for step in trace) == choice["raw_text"]
    assert trace[-1]["distance"] == 0
    assert all(before["distance"] - after["distance"] <= 1 for before, after in itertools.pairwise(trace))
    assert math.isclose(sum(step["log_prob"] for step in trace), choice["log_prob"], abs_tol=0.01)
    assert math.isclose(sum(step["score"] for step in trace), choice["score"], abs_tol=0.01)
    assert trace[-1]["state"] == choice["words"][-1]["state"]
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": len(trace), "sequences": 8}
    assert len(trace) <= 24
    assert answer["model"] == "captions"
    assert answer["timings"]["decode_ms"] <= answer["timings"]["total_ms"]


def test_the_framework_runs_no_part_of_a_request_in_threads(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dependency that is not async takes a thread. It would take half the time of a small request."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(anyio.to_thread, "run_sync", refuse)
    for path, body in (("/compile", {}), ("/check", {"text": "ab"}), ("/generate", {"prompt": "", "max_tokens": 4})):
        response = client.post(path, json={"constraint": {"regex": "ab"}, **body})
        assert response.status_code == 200, response.text


def test_a_regex_matches_the_whole_answer_and_n_answers_differ(client: TestClient) -> None:
    answer = generate(client, CLOCK, n=4, max_tokens=28, length_penalty=0)
    texts = [choice["text"] for choice in answer["choices"]]
    assert 1 < len(texts) == len(set(texts)) <= 4
    assert all(re.fullmatch(CLOCK["regex"], text) for text in texts)
    assert all(choice["trace"] is None for choice in answer["choices"])
    log_probs = [choice["log_prob"] for choice in answer["choices"]]
    assert log_probs == sorted(log_probs, reverse=True)


def test_answers_list_the_keywords_without_effect(client: TestClient) -> None:
    constraint = {"json_schema": {"enum": ["a", "b"], "enmu": ["a"]}}
    for answer in (compiled(client, constraint), generate(client, constraint), generate(client, constraint)):
        assert answer["not_enforced"] == ["/enmu"]
    assert generate(client, KEYWORDS)["not_enforced"] == []
    refused = client.post("/compile", json={"constraint": {**constraint, "strict": True}}).json()
    assert (refused["code"], refused["construct"], refused["field"]) == ("unsupported", "enmu", "json_schema.enmu")
    assert refused["detail"].endswith("did you mean enum?")


def test_answers_list_the_keywords_that_are_approximated(client: TestClient) -> None:
    schema = {"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": True, "maxItems": 2}
    constraint = {"json_schema": schema, "approximate": ["uniqueItems"]}
    for answer in (compiled(client, constraint), generate(client, constraint), generate(client, constraint)):
        assert answer["approximate"] == ["/uniqueItems"]
    chosen = {"prompt": "a", "constraint": constraint, "max_tokens": 20}
    assert client.post("/v1/completions", json=chosen).json()["approximate"] == ["/uniqueItems"]
    assert generate(client, KEYWORDS)["approximate"] == []


def test_answers_say_that_items_come_in_one_order(client: TestClient) -> None:
    schema = {"type": "array", "items": {"enum": [f"value {n}" for n in range(12)]}, "uniqueItems": True, "maxItems": 9}
    exact, listed = {"json_schema": schema}, {"sequence": [{"json_schema": schema}]}
    for answer in (compiled(client, listed), generate(client, listed), generate(client, listed)):
        assert answer["approximate"] == ["/uniqueItems"]
        assert [each["message"].startswith("where `approximate` names") for each in answer["warnings"]] == [True]
    for answer in (compiled(client, exact), generate(client, exact, max_tokens=80)):
        assert answer["approximate"] == [] and "warnings" not in answer


def test_a_default_answer_has_a_number_as_its_proven_gap(client: TestClient) -> None:
    choices = generate(client, KEYWORDS, n=4, trace=True)["choices"]
    gaps = [choice["proven_gap"] for choice in choices]
    assert all(isinstance(gap, float) and gap >= 0 for gap in gaps) and gaps == sorted(gaps)
    bounds = [choice["log_prob"] / math.sqrt(len(choice["trace"])) + choice["proven_gap"] for choice in choices]
    assert bounds == pytest.approx([bounds[0]] * len(bounds))  # one bound for all answers of a request


def test_the_best_of_few_options_is_proven_the_best(client: TestClient) -> None:
    options = ["a dog", "a cat", "two toys", "coffee"]
    choices = generate(client, {"choice": options}, n=4, beams=16, length_penalty=0)["choices"]
    assert sorted(choice["text"] for choice in choices) == sorted(options)
    best_log_prob = choices[0]["log_prob"]
    assert choices[0]["proven_gap"] == 0
    gaps = [best_log_prob - choice["log_prob"] for choice in choices]
    assert [choice["proven_gap"] for choice in choices] == pytest.approx(gaps)


@pytest.mark.parametrize("options", [{"algorithm": "abs", "beams": 8}, {"algorithm": "sample", "seed": 3, "n": 2}])
def test_abs_and_sample_have_no_proven_gap(client: TestClient, options: dict[str, Any]) -> None:
    request = {"prompt": "sentence:", "constraint": {"choice": ["a dog", "a cat"]}, "max_tokens": 24, **options}
    choices = choices_of(client, request)
    assert choices and all(choice["proven_gap"] is None for choice in choices)


def test_answers_are_ranked_by_rank_by(client: TestClient) -> None:
    answer = generate(client, KEYWORDS, n=4, algorithm="abs", rank_by="score")
    scores = [choice["score"] for choice in answer["choices"]]
    assert scores == sorted(scores, reverse=True)


def test_the_hash_of_a_compiled_constraint_stands_for_it(client: TestClient) -> None:
    first = compiled(client, KEYWORDS)
    body = {"prompt": "sentence:", "automaton": first["automaton"], "max_tokens": 16, "beams": 4}
    by_hash = client.post("/generate", json=body).json()
    inline = generate(client, KEYWORDS, max_tokens=16, beams=4)
    assert by_hash["choices"] == inline["choices"]
    assert by_hash["automaton"] == inline["automaton"] == first["automaton"]
    assert by_hash["timings"]["cached"] and inline["timings"]["cached"]
    repeat = client.post("/compile", json={"constraint": KEYWORDS, "model": "captions"}).json()
    assert (repeat["cached"], repeat["compile_ms"]) == (True, 0)
    assert repeat | {"cached": 0, "compile_ms": 0} == first | {"cached": 0, "compile_ms": 0}


@pytest.mark.parametrize("constraint", [ORDERED, CLOCK, KEYWORDS])
def test_min_tokens_suffice_and_a_smaller_budget_is_refused(client: TestClient, constraint: dict[str, Any]) -> None:
    min_tokens = compiled(client, constraint)["min_tokens"]
    answer = generate(client, constraint, max_tokens=min_tokens)
    assert answer["choices"][0]["satisfied"]
    assert answer["usage"]["completion_tokens"] == min_tokens
    refusal = client.post("/generate", json={"prompt": "a", "constraint": constraint, "max_tokens": min_tokens - 1})
    assert refusal.status_code == 422
    assert (refusal.json()["code"], refusal.json()["min_tokens"]) == ("budget_too_small", min_tokens)


def test_an_empty_prompt_is_continued(client: TestClient) -> None:
    assert generate(client, KEYWORDS, prompt="")["choices"][0]["satisfied"]


def test_concurrent_requests_get_the_same_answers_as_single_ones(
    client: TestClient, threads: ThreadPoolExecutor
) -> None:
    options = [{"algorithm": "abs"}, {}, {"algorithm": "sample", "seed": 3, "n": 2}, {"scope": "full"}]
    requests = [
        {"constraint": constraint, "prompt": "sentence:" if "regex" not in constraint else "", "max_tokens": 28,
         **({} if "seed" in option else {"beams": 3}), **option}
        for constraint in (CLOCK, KEYWORDS) for option in options
    ]
    single_answers = [choices_of(client, request) for request in requests]
    assert list(threads.map(lambda request: choices_of(client, request), requests)) == single_answers


def choices_of(client: TestClient, request: dict[str, Any]) -> Any:
    response = client.post("/generate", json=request)
    assert response.status_code == 200, response.text
    return response.json()["choices"]


def test_a_sample_reports_its_seed_and_is_reproducible(client: TestClient) -> None:
    body = {"prompt": "sentence:", "constraint": KEYWORDS, "max_tokens": 12, "algorithm": "sample", "n": 2}
    first, other = (client.post("/generate", json=body).json() for _ in range(2))
    assert first["seed"] != other["seed"]
    repeat = client.post("/generate", json=body | {"seed": first["seed"]}).json()
    assert (repeat["choices"], repeat["seed"]) == (first["choices"], first["seed"])
    assert first["usage"]["sequences"] == 2
    greedy = [client.post("/generate", json=body | {"temperature": 0, "seed": seed}).json() for seed in (1, 2)]
    assert greedy[0]["choices"] == greedy[1]["choices"]
    assert generate(client, KEYWORDS)["seed"] is None


def test_a_length_penalty_prefers_longer_answers(client: TestClient) -> None:
    short_or_long = {"choice": ["a", "a b c d e f g h"]}
    answers = [generate(client, short_or_long, length_penalty=penalty) for penalty in (0.0, 2.0)]
    assert [answer["choices"][0]["text"] for answer in answers] == short_or_long["choice"]


def test_with_full_scope_prompt_and_answer_satisfy_together(client: TestClient) -> None:
    prompt = "A dog cat"
    choice = generate(client, KEYWORDS, prompt=prompt, scope="full")["choices"][0]
    assert [word["propositions"] for word in choice["words"] if word["propositions"]][:2] == [["dog"], ["catch"]]
    verdict = client.post("/check", json={"constraint": KEYWORDS, "text": prompt + choice["text"]}).json()
    assert (verdict["satisfied"], verdict["words"]) == (True, choice["words"])
    body = {"prompt": "it catches a dog", "constraint": KEYWORDS, "scope": "full"}
    refusal = client.post("/generate", json=body).json()
    assert (refusal["code"], refusal["position"]) == ("prompt_violates", len("it catches"))


@pytest.mark.parametrize(
    ("constraint", "text", "satisfied", "violated_at"),
    [
        ({"ltlf": "F(dog) & G(!cat)"}, "the dog", True, None),
        ({"ltlf": "F(dog) & G(!cat)"}, "the cat sees a dog", False, 7),
        ({"ltlf": "F(dog)"}, "hotdog dogs", False, 11),
        ({"ltlf": "F(dog)"}, "", False, 0),
        ({"regex": "[a-c]+"}, "abd", False, 2),
        ({"regex": "[a-c]+x"}, "abc", False, 3),
        ({"regex": "(🐕|犬)+"}, "犬🐕", True, None),
        ({"keywords": ["b", "a"], "ordered": True}, "b then a", True, None),
    ],
)
def test_texts_are_checked(
    client: TestClient, constraint: dict[str, Any], text: str, satisfied: bool, violated_at: int | None
) -> None:
    answer = client.post("/check", json={"constraint": constraint, "text": text}).json()
    assert (answer["satisfied"], answer["violated_at"]) == (satisfied, violated_at)
    assert [word["text"] for word in answer["words"]] == UNIT.findall(text)


def test_check_with_parts_judges_each_conjunct(client: TestClient) -> None:
    constraint = {"all": [{"ltlf": "F(dog) & G(!cat)"}, {"keywords": ["ball", "park"]}, {"max_chars": 40}]}
    body = {"constraint": constraint, "text": "the dog and the cat play ball"}
    assert client.post("/check", json=body).json()["conjuncts"] is None
    answer = client.post("/check", json=body | {"conjuncts": True}).json()
    verdicts = [(part["path"], part["satisfied"], part["violated_at"]) for part in answer["conjuncts"]]
    assert verdicts == [
        ("all.0.ltlf", True, None), ("all.0.ltlf", False, 19), ("all.1.keywords.0", True, None),
        ("all.1.keywords.1", False, 29), ("all.2", True, None),
    ]
    assert answer["violated_at"] == 19
    for part in answer["conjuncts"]:
        verdict = client.post("/check", json={"constraint": part["constraint"], "text": body["text"]}).json()
        assert (verdict["satisfied"], verdict["violated_at"]) == (part["satisfied"], part["violated_at"])


def test_an_automaton_is_shown_with_its_distances(client: TestClient) -> None:
    sizes = compiled(client, ORDERED)
    response = client.get(f"/automata/{sizes['automaton']}")
    view = response.json()
    assert response.headers["etag"] == f'"{sizes["automaton"]}"'
    assert len(view["states"]) == sizes["states"]
    assert len(view["letters"]) == sizes["letters"]
    assert view["states"][view["start"]]["distance"] == sizes["min_tokens"] == view["min_tokens"]
    assert sorted(state["distance"] for state in view["states"] if state["distance"] is not None) == [1, 2, 3, 4]
    assert [state["id"] for state in view["states"] if state["accepting"]] == view["accepting"]
    edges = [(transition["from"], letter) for transition in view["transitions"] for letter in transition["letters"]]
    pairs = [(state["id"], letter) for state in view["states"] for letter in range(len(view["letters"]))]
    assert sorted(edges) == sorted(pairs)
    assert sorted(view["letters"]) == [[], ["cat"], ["coffee"], ["toy"]]
    assert view["constraint"] == ORDERED | {"propositions": {}}


def test_letters_are_distinct_for_any_proposition_names(client: TestClient) -> None:
    propositions = {"a": ["dog", "cat"], "b": ["dog", "bird"], "a, b": ["fish"], "other": ["cow"]}
    constraint = {"ltlf": 'F(a | b | "a, b" | other)', "propositions": propositions}
    assert sorted(automaton_of(client, constraint)["letters"]) == [[], ["a"], ["a", "b"], ["a, b"], ["b"], ["other"]]


def test_a_letter_of_a_regex_is_one_class_of_characters(client: TestClient) -> None:
    automaton = automaton_of(client, {"regex": "[a-c]+x"})
    assert automaton["kind"] == "characters"
    assert all(len(letter) == 1 for letter in automaton["letters"]) and ["'x'"] in automaton["letters"]


def test_control_characters_in_names_are_drawn_visibly(client: TestClient) -> None:
    constraint = {"ltlf": 'F("a\x01b")', "propositions": {"a\x01b": ["dog"]}}
    automaton = compiled(client, constraint)["automaton"]
    for ending in (".dot", ".svg"):
        picture = client.get(f"/automata/{automaton}{ending}").text
        assert "\x01" not in picture and "u0001b" in picture
    assert "a\\u0001b" in picture_texts(picture)


def test_an_automaton_is_drawn(client: TestClient) -> None:
    automaton = compiled(client, ORDERED)["automaton"]
    dot = client.get(f"/automata/{automaton}.dot")
    assert dot.headers["content-type"].startswith("text/vnd.graphviz")
    assert dot.text.startswith("digraph") and "coffee" in dot.text and "d 4" in dot.text
    svg = client.get(f"/automata/{automaton}.svg")
    assert svg.headers["content-type"] == "image/svg+xml"
    assert {"q0", "d 4", "coffee"} <= picture_texts(svg.text)


def test_an_automaton_too_large_to_display_is_refused(short_sighted_client: TestClient) -> None:
    automaton = compiled(short_sighted_client, ORDERED)["automaton"]
    for ending in ("", ".dot", ".svg"):
        response = short_sighted_client.get(f"/automata/{automaton}{ending}")
        assert (response.status_code, response.json()["limit"]) == (422, "automaton_view_cells_max")


def test_alive_and_ready_are_two_things() -> None:
    with TestClient(create_app(Settings.of(embedded_workers=()))) as client:
        assert client.get("/health").json() == {"status": "ok"}
        response = client.get("/ready")
        assert (response.status_code, response.json()["code"]) == (503, "not_ready")
        assert response.json()["reasons"] == ["no compile worker is alive", "no generate worker is alive"]
        assert int(response.headers["retry-after"]) >= 1
        refusal = client.post("/check", json={"constraint": {"regex": "a"}, "text": "a"})
        assert (refusal.status_code, refusal.json()["code"]) == (503, "not_ready")


def test_responses_do_not_contain_the_operators_paths(tmp_path: Path, captions_dir: Path) -> None:
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_text((captions_dir / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with service_client(None, model=str(tmp_path)) as client:
        until(lambda: "see the log" in client.get("/ready").text)
        body = {"prompt": "a", "constraint": {"regex": "a"}}
        for response in (client.get("/ready"), client.post("/generate", json=body)):
            assert (response.status_code, response.json()["code"]) == (503, "not_ready")
            assert "generate worker: the model cannot be loaded; see the log" in response.json()["reasons"]
            assert str(tmp_path) not in response.text and "safetensors" not in response.text


def failing_client(route: Callable[[], None]) -> TestClient:
    """A client of a service whose path /broken raises an error."""
    app = create_app(Settings.of(embedded_workers=()))
    app.get("/broken")(route)
    return TestClient(app)


def test_a_bug_is_answered_and_logged_without_its_message(caplog: pytest.LogCaptureFixture) -> None:
    def broken_route() -> None:
        raise ZeroDivisionError("MARKER of the prompt") from KeyError("MARKER")

    with failing_client(broken_route) as client:
        response = client.get("/broken", headers={"x-request-id": "mine-2"})
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    assert response.headers["x-request-id"] == response.json()["request_id"] == "mine-2"
    assert "MARKER" not in response.text + caplog.text.replace('Error("MARKER', "")  # the line of source that raised
    assert all(part in caplog.text for part in ("mine-2", "ZeroDivisionError", "KeyError", "in broken_route"))


def test_details_of_a_model_failure_are_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    def unavailable_route() -> None:
        raise JobFailed("ModelUnavailable", "no weights in /srv/models", {}, ModelUnavailable.facts)

    with failing_client(unavailable_route) as client:
        response = client.get("/broken")
    assert (response.status_code, response.json()["code"]) == (503, "model_unavailable")
    assert "/srv" not in response.text and "/srv/models" in caplog.text


def test_a_path_with_one_slash_too_many_is_not_found(client: TestClient) -> None:
    response = client.post("/compile/", json={"constraint": {"regex": "a"}}, follow_redirects=False)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


def test_a_response_repeats_the_request_id(client: TestClient) -> None:
    assert client.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    for invalid_id in ("x" * 65, "a b", "a\tb"):
        new_id = client.get("/health", headers={"x-request-id": invalid_id}).headers["x-request-id"]
        assert new_id != invalid_id and new_id.startswith("abs-")


def test_a_short_deadline_is_observed(client: TestClient) -> None:
    body = {"prompt": "a", "constraint": KEYWORDS, "max_tokens": 64, "beams": 64, "timeout_s": 0.001}
    response = client.post("/generate", json=body)
    assert (response.status_code, response.json()["code"]) == (504, "deadline")
    assert generate(client, KEYWORDS)["choices"][0]["satisfied"]
