"""Has parsers of other systems judge our verdicts and answers.

The grammars are those of other systems' tests (`tests.references.grammar_suites`), whose texts have verdicts, and
StructureBench's templates. The latter are files `constraint_templates/*/*.ebnf` and `*.cfg` of a checkout, in
XGrammar's EBNF and in Lark's syntax, without texts: these are drawn from the rules, and changed.
"""

from __future__ import annotations

import json
import random
import re
import signal
import string
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from app.models import open_model_files
from app.settings import BUILT_IN_MODEL
from benchmarks.compiler.cases import Expression
from benchmarks.compiler.engine_process import EngineProcess, MeasureRequest
from benchmarks.runs import Row, tokenizer_path
from compiler.errors import CompileError
from tests.references.context_free import derives, mutated, random_text
from tests.references.grammar_suites import SUITES, SuiteRow, answers, earley_parser, refusal, suite_rows

_SYNTAXES = {".ebnf": "ebnf", ".cfg": "lark"}
_TEXTS = 200  # drawn from a template, half of them changed
_CHARS_MAX = 200  # of a text for the slower parsers
_LARK_S = 10  # to read a template: optional parts double Lark's rules
_ANSWERS = 20  # at each of three budgets
# An alternative without elements, which XGrammar wants written as "".
_EMPTY = re.compile(r"(::=|\|)[ \t]*(?=\||\)|\r?\n[ \t]*(?:\n|[\w-]+ *::=|#|$)|$)")
_VOCABULARIES = ("gpt2", "o200k_base")
Parser = Callable[[str], bool]


def template_rows(args: Namespace) -> Iterator[Row]:
    """A row for each template. Without `--data` there are none."""
    folder = args.data / "constraint_templates"
    with ExitStack() as stack:
        processes = {
            name: EngineProcess("ours", tokenizer_path(args.shared, name), stack, "benchmarks.grammars.measure")
            for name in _VOCABULARIES
        }
        for path in sorted(each for each in folder.glob("*/*") if each.suffix in _SYNTAXES):
            template = SuiteRow(
                "StructureBench", path.relative_to(folder).as_posix(), _SYNTAXES[path.suffix],
                path.read_text(encoding="utf-8"),
            )  # fmt: skip
            yield {"template": template.name} | _compiled(template, processes, args) | _judged(template)


def suite_answer_rows(args: Namespace) -> Iterator[Row]:
    """A row for each suite and parser. Its home compiles the grammars, too."""
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    for suite in SUITES:
        rows = dict[str, Row]()
        for number, row in enumerate(row for row in suite_rows(suite) if not row.refused and not row.refused_there):
            judge, parser = _parser(row)
            count = rows.setdefault(judge, {"grammars": 0, "answers": 0, "rejected": []})
            written = answers(row, vocabulary, number)
            accepts = parser or partial(derives, row.compile()[0])
            count["grammars"] += 1
            count["answers"] += len(written)
            count["rejected"] += [row.name for text in written if not accepts(text)]
        for judge, count in rows.items():
            yield {"suite": suite, "judge": judge} | count


def _compiled(template: SuiteRow, processes: dict[str, EngineProcess], args: Namespace) -> Row:
    """The time and the size of a compile over each vocabulary."""
    constraint = json.dumps({"grammar": template.grammar, "syntax": template.syntax})
    request = MeasureRequest(
        Expression("constraint", constraint), args.time_limit, args.memory_limit_gb * 10**9,
        {"accepted": [], "rejected": []},
    )  # fmt: skip
    row: dict[str, Any] = {}
    for name, process in processes.items():
        outcome = process.measure(request)
        row |= {"outcome": outcome.outcome, "message": outcome.message[:120]}
        if outcome.outcome == "ok":
            row[name] = round(outcome.figures["ms"], 1)
            row |= {figure: outcome.figures[figure] for figure in ("states", "table_bytes")}
    return row


def _judged(template: SuiteRow) -> Row:
    """The texts and answers on which another parser agrees."""
    try:
        grammar, machine = template.compile()
    except CompileError as error:
        return {"refused": refusal(error)}
    judge, parser = _parser(template)
    draw = random.Random(crc32(template.name.encode()))
    texts = set[str]()
    for _ in range(_TEXTS // 2):
        text = random_text(grammar, draw)
        if len(text) <= _CHARS_MAX:
            texts |= {text, mutated(text, draw, text or "a")}
    accepts: Parser = parser or partial(derives, grammar)
    wrong = [text for text in sorted(texts) if machine.accepts(text.encode()) != accepts(text)]
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    written = answers(template, vocabulary, 1, _ANSWERS)
    return {
        "judge": judge, "texts": len(texts), "accepted": sum(machine.accepts(text.encode()) for text in texts),
        "other_verdicts": wrong, "answers": len(written), "in_language": sum(map(accepts, written)),
    }  # fmt: skip


def _parser(template: SuiteRow) -> tuple[str, Parser | None]:
    """The first system that reads a template, and its parser. None: none does."""
    if template.syntax != "lark":
        for grammar in (template.grammar, _EMPTY.sub(r'\1 "" ', template.grammar)):
            try:
                return "XGrammar", _xgrammar_parser(grammar)
            except RuntimeError:
                continue
        return "our rules", None
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(_LARK_S)
    try:
        return "Lark", earley_parser(template.grammar)
    except (ValueError, TimeoutError):
        return "llguidance", _llguidance_parser(template.grammar)
    finally:
        signal.alarm(0)


def _stop(number: int, frame: object) -> None:
    raise TimeoutError


def _xgrammar_parser(grammar: str) -> Parser:
    import xgrammar

    tokens = xgrammar.TokenizerInfo([b""], vocab_size=1, stop_token_ids=[0])
    compiled = xgrammar.GrammarCompiler(tokens, max_threads=1).compile_grammar(xgrammar.Grammar.from_ebnf(grammar))

    def accepts(text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
        return bool(matcher.accept_string(text)) and matcher.is_terminated()

    return accepts


def _llguidance_parser(grammar: str) -> Parser:
    import llguidance

    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(grammar))
    # In Lark a text may begin with what is ignored, white space in these templates. In llguidance it may not.
    beginning = string.whitespace if "%ignore" in grammar else ""

    def accepts(text: str) -> bool:
        matcher.reset()
        tokens = tokenizer.tokenize_bytes(text.lstrip(beginning).encode())
        return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())

    return accepts


def data_of(path: str) -> Path:
    """The checkout that --data names."""
    if not (Path(path) / "constraint_templates").is_dir():
        raise ValueError(f"{path} is no checkout of StructureBench")
    return Path(path)
