"""Word cases of the compile benchmark. They are keywords, formulas, templates, and combinations of all forms.

The other engines have no notion of words. If a regex can express the constraint, it is written out
(`keyword_patterns`). llguidance can intersect and complement the terminals of its grammars, so it can express most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.compiler.cases import CompileCase, Expression, for_all
from benchmarks.compiler.regex_cases import pattern_case
from benchmarks.compiler.schema_cases import Schema, record
from benchmarks.keyword_patterns import ANYTHING, ASCII, UNICODE, Concepts, Pattern, first_concepts
from benchmarks.runs import concept_sets_path

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
}  # the paper's clothing specification: the items that may not follow each; T is its t_shirt_top
_REQUIRED_KINDS = (("T", "Pullover", "Shirt", "Dress"), ("Trouser", "Dress"), ("Sandal", "Sneaker", "Ankle boot"))
RUDE = ("damn", "hell", "stupid", "idiot", "fool", "ugly", "hate", "kill", "dumb", "shut")


def clothing_formula() -> str:
    """The paper's clothing specification (appendix): 10 propositions, each at most once, and one of each kind."""
    parts = [f'G("{item}" -> !F "{exclusion}")' for item, exclusions in _CLOTHES.items() for exclusion in exclusions]
    parts += [f'G("{item}" -> WX G !"{item}")' for item in _CLOTHES]
    parts += ["F(" + " | ".join(f'"{item}"' for item in kind) + ")" for kind in _REQUIRED_KINDS]
    return " & ".join(parts)


def lark(*terms: str) -> Expression:
    """A grammar with one terminal, the intersection of the terms."""
    return Expression("lark", "start: T\nT: " + " & ".join(terms))


def has_word(*forms: str) -> str:
    """A llguidance term: one of the words occurs, in either case. An occurrence inside another word does not count."""
    return rf"/(?s:(.*\W)?)(?i:{'|'.join(forms)})(?s:(\W.*)?)/"


def _keywords(name: str, concepts: Concepts, ordered: bool) -> CompileCase:
    constraint = {"keywords": [list(forms) for forms in concepts], "ordered": ordered}
    if ordered:
        pattern, ascii_pattern = (Pattern(alphabet).subsequence(concepts) for alphabet in (UNICODE, ASCII))
        ascii_form = Expression("regex", ascii_pattern, _LOOSE_ASCII)
        peers = for_all(Expression("regex", pattern, _LOOSE), but={"xgrammar": ascii_form})
        return CompileCase(name, "keywords", constraint, peers)
    peers = {"llguidance": lark(*(has_word(*forms) for forms in concepts))}
    if len(concepts) <= _ALL_ORDERS_MAX:
        peers["outlines_core"] = Expression("regex", Pattern(UNICODE).unordered(concepts))
        peers["xgrammar"] = Expression("regex", Pattern(ASCII).unordered(concepts), "ASCII only")
    return CompileCase(name, "keywords", constraint, peers)


def _formulas() -> Iterable[CompileCase]:
    def formula(name: str, text: str, words: dict[str, list[str]] | None = None, **peers: Expression) -> CompileCase:
        return CompileCase(name, "formulas", {"ltlf": text} | ({"propositions": words} if words else {}), peers)

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


def _without_then(banned: Concepts, required: tuple[str, ...] | None) -> str:
    """A regex that forbids banned words and may require one word.

    `required` None requires no word. Words are those of Unicode.
    """
    write = Pattern(UNICODE)
    clean = write.without(banned)
    last = f"(?:{write.other_word([form for forms in banned for form in forms])})?"
    if required is None:
        return clean + last
    return rf"{clean}{write.word(required)}(?:{write.alphabet.not_word}{clean}{last})?"


_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # the characters themselves: engines differ in their escapes
_GAP = {  # as `compiler.forms.infill` defines the gaps
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


def _templates() -> Iterable[CompileCase]:
    for name, template in _TEMPLATES.items():
        pattern = "".join(template_pattern(template))
        ascii_pattern = pattern.replace(r"\w", "[0-9A-Za-z_]").replace(_LINE_ENDS, r"\n")
        xgrammar = Expression("regex", ascii_pattern, r"ASCII words, and only \n ends a line")
        peers = for_all(Expression("regex", pattern), but={"xgrammar": xgrammar})
        yield CompileCase(f"template: {name}", "templates", {"infill": template, "leading_space": "forbid"}, peers)
    text = "Room <|infill:[0-9]{3}|> is free from <|infill:[0-2][0-9]:[0-5][0-9]|>. Ask <|infill:[A-Z][a-z]{1,20}|>."
    pattern = r"Room [0-9]{3} is free from [0-2][0-9]:[0-5][0-9]\. Ask [A-Z][a-z]{1,20}\."
    constraint = {"infill": text, "leading_space": "forbid"}
    yield CompileCase("template: own regexes", "templates", constraint, for_all(Expression("regex", pattern)))


def template_pattern(template: str) -> Iterable[str]:
    """The regex pieces of a template with word and sentence gaps."""
    for number, piece in enumerate(template.replace("|>", "<|infill_").split("<|infill_")):
        yield _GAP[piece] if number % 2 else piece.replace(".", r"\.")


def _combinations(concepts: Concepts) -> Iterable[CompileCase]:
    keywords = {"keywords": [list(forms) for forms in concepts]}
    line = {"regex": r"[A-Z][^\n]*\.", "leading_space": "forbid"}
    dog_then_ball = "(!ball U dog) & F(ball)"
    summary: Schema = {"type": "string", "constraint": {"ltlf": dog_then_ball}}
    pattern = r"^(?:[^\n]*[^0-9A-Za-z_])?dog[^0-9A-Za-z_](?:[^\n]*[^0-9A-Za-z_])?ball(?:[^0-9A-Za-z_][^\n]*)?$"
    flat = json.dumps(_reply({"type": "string", "pattern": pattern}))
    at_most_80 = r"/[\s\S]{0,80}/"
    has_all = [has_word(*forms) for forms in concepts]
    line_pattern = r"/[A-Z][^\n]*\./"

    def row(name: str, constraint: Mapping[str, object], **peers: Expression) -> CompileCase:
        return CompileCase(f"all: {name}", "combinations", constraint, peers)

    yield row(
        "line, formula, 80 characters",
        {"all": [line, {"ltlf": dog_then_ball}, {"max_chars": 80}]},
        llguidance=lark(line_pattern, r"/(?s:(.*\W)?)(?i:dog)\W(?s:(.*\W)?)(?i:ball)(?s:(\W.*)?)/", at_most_80),
    )
    yield row("line and three keywords", {"all": [line, keywords]}, llguidance=lark(line_pattern, *has_all))
    yield row(
        "line without ten words",
        {"all": [line, {"not": {"ltlf": f"F({' | '.join(RUDE)})"}}]},
        llguidance=lark(line_pattern, "~" + has_word(*RUDE)),
    )
    yield row("keywords, 5 to 20 words", {"all": [keywords, {"min_words": 5, "max_words": 20}]})
    yield row("keywords, two sentences, 120 characters", {"all": [keywords, {"sentences": 2, "max_chars": 120}]})
    yield row(
        "JSON whose summary obeys a formula",
        {"json_schema": _reply(summary), "whitespace": "compact", "leading_space": "forbid"},
        **for_all(Expression("json_schema", flat, "a pattern stands for the formula; ASCII words")),
    )
    yield row(
        "JSON whose summary obeys a formula in 80 characters",
        {"json_schema": _reply(summary | {"maxLength": 80}), "whitespace": "compact", "leading_space": "forbid"},
    )
    alternatives = {
        "any": [{"regex": pattern, "leading_space": "forbid"} for pattern in (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "unknown")]
    }
    yield row("date or unknown", alternatives, **pattern_case("", "", r"[0-9]{4}-[0-9]{2}-[0-9]{2}|unknown").peers)
    apology_free = {"not": {"regex": rf"(?i){ANYTHING}(?:sorry|apolog){ANYTHING}", "leading_space": "forbid"}}
    yield row("no apology", apology_free, llguidance=lark(r"~/(?s:.*)(?i:sorry|apolog)(?s:.*)/"))


def _reply(summary: Schema) -> Schema:
    return record({"id": {"type": "integer"}, "summary": summary, "done": {"type": "boolean"}})


def cases(shared: Path) -> tuple[CompileCase, ...]:
    """All cases of this module."""
    concepts = first_concepts(concept_sets_path(shared), max(UNORDERED))
    return (
        *(_keywords(f"{size} keywords", concepts[:size], False) for size in UNORDERED),
        *(_keywords(f"{size} keywords in order", concepts[:size], True) for size in ORDERED),
        *_formulas(),
        *_templates(),
        *_combinations(concepts[:3]),
    )
