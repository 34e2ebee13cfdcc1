"""Rows of the compile benchmark over the word trace: keywords, formulas, templates, and combinations of all forms.

The other engines have no word trace. Where a regex can say the same it is written out (`keyword_cases`); llguidance
intersects and complements the terminals of its grammars, so it can say most of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.keyword_cases import ANYTHING, ASCII, UNICODE, Concepts, Pattern, first_concepts
from benchmarks.suite import Case, Expression, for_all
from benchmarks.suite_patterns import pattern_case
from benchmarks.suite_schemas import Schema, record

UNORDERED, ORDERED = (3, 4, 5, 8, 10), (3, 5, 8, 10)
_ALL_ORDERS_MAX = 5  # n keywords in any order are n! orders in a regex
_LOOSE = "in order means only that they occur in this order somewhere"
_LOOSE_ASCII = f"{_LOOSE}; ASCII only"
_CLOTHES = {
    "T": ("Shirt", "Dress"),
    "Trouser": ("Dress",),
    "Pullover": ("Dress", "T", "Shirt"),
    "Dress": ("T", "Shirt", "Trouser", "Pullover"),
    "Coat": ("T", "Shirt", "Pullover", "Dress"),
    "Sandal": ("Sneaker", "Trouser", "Ankle boot"),
    "Shirt": ("T", "Dress"),
    "Sneaker": ("Sandal", "Trouser", "Ankle boot"),
    "Bag": ("T", "Shirt", "Dress", "Pullover", "Coat"),
    "Ankle boot": ("Sandal", "Trouser", "Sneaker"),
}  # the paper's clothing specification: what may no more follow each; T is its t_shirt_top
_WORN = (("T", "Pullover", "Shirt", "Dress"), ("Trouser", "Dress"), ("Sandal", "Sneaker", "Ankle boot"))
RUDE = ("damn", "hell", "stupid", "idiot", "fool", "ugly", "hate", "kill", "dumb", "shut")


def clothing_formula() -> str:
    """The paper's clothing specification (appendix): 10 propositions, each at most once, and something of each kind."""
    parts = [f'G("{item}" -> !F "{other}")' for item, others in _CLOTHES.items() for other in others]
    parts += [f'G("{item}" -> WX G !"{item}")' for item in _CLOTHES]
    parts += ["F(" + " | ".join(f'"{item}"' for item in kind) + ")" for kind in _WORN]
    return " & ".join(parts)


def lark(*terms: str) -> Expression:
    """A grammar of one terminal, the intersection of the terms."""
    return Expression("lark", "start: T\nT: " + " & ".join(terms))


def has_word(*forms: str) -> str:
    """A llguidance term: one of the words occurs, as a whole word, in either case."""
    return rf"/(?s:(.*\W)?)(?i:{'|'.join(forms)})(?s:(\W.*)?)/"


def _keywords(name: str, concepts: Concepts, ordered: bool) -> Case:
    constraint = {"keywords": [list(forms) for forms in concepts], "ordered": ordered}
    if ordered:
        whole, plain = (Pattern(alphabet).subsequence(concepts) for alphabet in (UNICODE, ASCII))
        peers = for_all(Expression("regex", whole, _LOOSE), but={"xgrammar": Expression("regex", plain, _LOOSE_ASCII)})
        return Case(name, "keywords", constraint, peers)
    peers = {"llguidance": lark(*(has_word(*forms) for forms in concepts))}
    if len(concepts) <= _ALL_ORDERS_MAX:
        peers["outlines_core"] = Expression("regex", Pattern(UNICODE).unordered(concepts))
        peers["xgrammar"] = Expression("regex", Pattern(ASCII).unordered(concepts), "ASCII only")
    return Case(name, "keywords", constraint, peers)


def _formulas() -> Iterable[Case]:
    def formula(name: str, text: str, words: dict[str, list[str]] | None = None, **peers: Expression) -> Case:
        return Case(name, "formulas", {"ltlf": text} | ({"propositions": words} if words else {}), peers)

    yield formula(
        "LTLf: the dog, never the cat",
        "F(dog) & !F(cat)",
        llguidance=lark(has_word("dog"), "~" + has_word("cat")),
        outlines_core=Expression("regex", _without_then((("cat",),), ("dog",))),
    )
    yield formula("LTLf: each question is answered", "G(question -> X F answer) & F(question)")
    yield formula("LTLf: nested next", "F(dog & X(X(X(cat & X(X(ball))))))")
    yield formula("LTLf: chain of untils", "(!ball U dog) & (!park U ball) & (!sun U park) & F(sun)")
    yield formula("LTLf: precedence, response, absence", "(!pay U order) & G(order -> F pay) & G(pay -> WX G !order)")
    yield formula("LTLf: the paper's clothing", clothing_formula(), {"T": ["t-shirt", "top"]})
    avoid = "G(" + " & ".join(f"!{word}" for word in RUDE) + ")"
    yield formula(
        "LTLf: none of ten words",
        avoid,
        llguidance=lark(r"/(?s:.*)\w(?s:.*)/", "~" + has_word(*RUDE)),
        outlines_core=Expression("regex", _without_then(((*RUDE,),), None), "the empty text too"),
    )


def _without_then(banned: Concepts, wanted: tuple[str, ...] | None) -> str:
    """A text in which no banned word occurs, and `wanted` does if given: a regex over Unicode's words."""
    write = Pattern(UNICODE)
    clean = write.without(banned)
    last = f"(?:{write.other_word([form for forms in banned for form in forms])})?"
    if wanted is None:
        return clean + last
    return rf"{clean}{write.word(wanted)}(?:{write.alphabet.not_word}{clean}{last})?"


_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # themselves, not escapes: engines know different escapes
_GAP = {  # `compiler.forms.infill` says what may fill a gap
    "word": r"\w+(?:['’\-]\w+)*",
    "sentence": rf"""["'“‘(]?\w(?:[^.!?{_LINE_ENDS}]*[^\s.!?])?[.!?]["'”’)]?""",
}
_TEMPLATES = {
    "one sentence, two words": "My day on <|infill_word|> went <|infill_word|>.",
    "five sentences, a word each": "On <|infill_word|> we drove to the lake. The water was <|infill_word|> and clear. "
    "My brother brought his <|infill_word|>. We stayed until <|infill_word|>. It was the best <|infill_word|> of all.",
    "five sentences, three open": "Tom found an old map in the attic. <|infill_sentence|> He called his sister. "
    "<|infill_sentence|> <|infill_sentence|>",
}


def _templates() -> Iterable[Case]:
    for name, template in _TEMPLATES.items():
        pattern = "".join(template_pattern(template))
        narrow = pattern.replace(r"\w", "[0-9A-Za-z_]").replace(_LINE_ENDS, r"\n")
        xgrammar = Expression("regex", narrow, r"ASCII words, and only \n ends a line")
        peers = for_all(Expression("regex", pattern), but={"xgrammar": xgrammar})
        yield Case(f"template: {name}", "templates", {"infill": template, "leading_space": "forbid"}, peers)
    own = "Room <|infill:[0-9]{3}|> is free from <|infill:[0-2][0-9]:[0-5][0-9]|>. Ask <|infill:[A-Z][a-z]{1,20}|>."
    whole = r"Room [0-9]{3} is free from [0-2][0-9]:[0-5][0-9]\. Ask [A-Z][a-z]{1,20}\."
    constraint = {"infill": own, "leading_space": "forbid"}
    yield Case("template: own regexes", "templates", constraint, for_all(Expression("regex", whole)))


def template_pattern(template: str) -> Iterable[str]:
    """The regex of a template with word and sentence gaps, in pieces."""
    for number, piece in enumerate(template.replace("|>", "<|infill_").split("<|infill_")):
        yield _GAP[piece] if number % 2 else piece.replace(".", r"\.")


def _combinations(concepts: Concepts) -> Iterable[Case]:
    keywords = {"keywords": [list(forms) for forms in concepts]}
    line = {"regex": r"[A-Z][^\n]*\.", "leading_space": "forbid"}
    dog_then_ball = "(!ball U dog) & F(ball)"
    summary: Schema = {"type": "string", "constraint": {"ltlf": dog_then_ball}}
    pattern = r"^(?:[^\n]*[^0-9A-Za-z_])?dog[^0-9A-Za-z_](?:[^\n]*[^0-9A-Za-z_])?ball(?:[^0-9A-Za-z_][^\n]*)?$"
    flat = json.dumps(_reply({"type": "string", "pattern": pattern}))
    at_most_80 = r"/[\s\S]{0,80}/"
    has_all = [has_word(*forms) for forms in concepts]
    one_line = r"/[A-Z][^\n]*\./"

    def row(name: str, constraint: Mapping[str, object], **peers: Expression) -> Case:
        return Case(f"all: {name}", "combinations", constraint, peers)

    yield row(
        "line, formula, 80 characters",
        {"all": [line, {"ltlf": dog_then_ball}, {"max_chars": 80}]},
        llguidance=lark(one_line, r"/(?s:(.*\W)?)(?i:dog)\W(?s:(.*\W)?)(?i:ball)(?s:(\W.*)?)/", at_most_80),
    )
    yield row("line and three keywords", {"all": [line, keywords]}, llguidance=lark(one_line, *has_all))
    yield row(
        "line without ten words",
        {"all": [line, {"not": {"ltlf": f"F({' | '.join(RUDE)})"}}]},
        llguidance=lark(one_line, "~" + has_word(*RUDE)),
    )
    yield row("keywords, 5 to 20 words", {"all": [keywords, {"min_words": 5, "max_words": 20}]})
    yield row("keywords, two sentences, 120 characters", {"all": [keywords, {"sentences": 2, "max_chars": 120}]})
    yield row(
        "JSON whose summary obeys a formula",
        {"json_schema": _reply(summary), "leading_space": "forbid"},
        **for_all(Expression("json_schema", flat, "a pattern stands for the formula; ASCII words")),
    )
    yield row(
        "JSON whose summary obeys a formula in 80 characters",
        {"json_schema": _reply(summary | {"maxLength": 80}), "leading_space": "forbid"},
    )
    either = {"any": [{"regex": one, "leading_space": "forbid"} for one in (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "unknown")]}
    yield row("date or unknown", either, **pattern_case("", "", r"[0-9]{4}-[0-9]{2}-[0-9]{2}|unknown").peers)
    no_apology = {"not": {"regex": rf"(?i){ANYTHING}(?:sorry|apolog){ANYTHING}", "leading_space": "forbid"}}
    yield row("no apology", no_apology, llguidance=lark(r"~/(?s:.*)(?i:sorry|apolog)(?s:.*)/"))


def _reply(summary: Schema) -> Schema:
    return record({"id": {"type": "integer"}, "summary": summary, "done": {"type": "boolean"}})


def cases(shared: Path) -> tuple[Case, ...]:
    concepts = first_concepts(shared / "data" / "commongen" / "dev.jsonl", max(UNORDERED))
    return (
        *(_keywords(f"{size} keywords", concepts[:size], False) for size in UNORDERED),
        *(_keywords(f"{size} keywords in order", concepts[:size], True) for size in ORDERED),
        *_formulas(),
        *_templates(),
        *_combinations(concepts[:3]),
    )
