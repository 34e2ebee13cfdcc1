"""Compares how probable the answers of each search are. Their texts are compared with people's.

    python -m benchmarks.quality.search_quality [--models captions bigram ...] [--sets 200] [--beams 1 4 8 16 64 128]

One row for each model, family of constraints, algorithm and number of beams, with T = 32. For some cases of each family
the best known answer is determined: by the default search with 256 beams, and for the bigram model by the exact
optimum. --draw SEED measures concept sets drawn at random instead of evenly spread ones. Rows of
results/search_quality.json are not measured again, so that an interrupted run continues; a row of fewer cases is
extended by the missing ones. --again measures all rows again. Writes RESULTS.md.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from app.models import ModelFiles, open_model_files
from app.settings import BUILT_IN_MODEL
from benchmarks.quality.bigram import BigramModel, most_probable
from benchmarks.quality.caption_scores import bleu_4, cider, words
from benchmarks.quality.cases import CAPTION_PROMPTS, MODELS, QualityCase, drawn_families, families
from benchmarks.report import write_report
from benchmarks.runs import RESULTS_DIRECTORY, Row, RowStore, concept_sets_path, parser_of
from benchmarks.systems.ours import LIMITS, ConstraintPreparer
from compiler.lifting import TokenAutomaton
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.text import answer_text
from decoding.model import HuggingFaceModel, LanguageModel
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import generate

RESULT = RESULTS_DIRECTORY / "search_quality.json"
MAX_TOKENS = 32
DEFAULT, JUDGED_BEAMS, WIDE_BEAMS, REFERENCE_BEAMS = "banked", 16, 64, 256
MEANS = ("log_prob", "tokens", "words", "seconds")
EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of a row. `beams` is 0 for the exact optimum, which takes no search."""

    model: str
    family: str
    algorithm: str
    beams: int
    length_penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class QualityAnswer:
    """One answer."""

    text: str
    log_prob: float
    tokens: int
    seconds: float


class QualityModel:
    """A model and its compiled constraints. `shared` is the folder of data and models."""

    def __init__(self, name: str, shared: Path, *, forced_tokens: bool = False) -> None:
        folder = BUILT_IN_MODEL if name in ("captions", "bigram") else str(shared / "models" / name)
        self.files: ModelFiles = open_model_files(folder)
        self.tokenizer = Tokenizer.from_file(str(self.files.tokenizer_file))
        self.model: LanguageModel[Any] = (
            self._bigram_model(shared, name) if name == "bigram" else HuggingFaceModel.load(folder, device="cpu")
        )
        self._preparer = ConstraintPreparer(self.model, self.files.vocabulary, self.tokenizer)
        self._forced_tokens = forced_tokens
        self._compiled = functools.cache(self._compile)

    def _bigram_model(self, shared: Path, name: str) -> BigramModel:
        """Of CommonGen's training captions, in the tokens of the built-in model."""
        with gzip.open(shared / "data" / "commongen" / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
            captions = [text for line in lines for text in json.loads(line)["references"]]
        encodings = self.tokenizer.encode_batch([f"{CAPTION_PROMPTS[name]} {text}" for text in captions])
        eos_ids = self.files.vocabulary.eos_ids
        texts = [[*encoding.ids, eos_ids[0]] for encoding in encodings]
        return BigramModel.estimated(texts, len(self.files.vocabulary.tokens), eos_ids)

    def _compile(self, constraint: str) -> tuple[Any, PreparedConstraint]:
        compiled = compile_spec(spec_from_json(json.loads(constraint)), self.files.vocabulary, LIMITS)
        return compiled.text, self._preparer.prepare(compiled.tokens, forced_tokens=self._forced_tokens)

    def constraint(self, case: QualityCase) -> PreparedConstraint:
        """The case's constraint, compiled once."""
        return self._compiled(json.dumps(case.constraint))[1]

    def prompt_ids(self, case: QualityCase) -> list[int]:
        """The case's prompt."""
        return list(self.tokenizer.encode(case.prompt).ids)

    def is_feasible(self, case: QualityCase) -> bool:
        """Whether the case's shortest text is within the budget."""
        return self.constraint(case).automaton.min_tokens <= MAX_TOKENS

    def answer(self, case: QualityCase, setting: Setting, lower_bound: float) -> QualityAnswer:
        """The answer to a case. `lower_bound`, the log-prob of some satisfying text, speeds up the exact solver."""
        text, constraint = self._compiled(json.dumps(case.constraint))
        prompt = self.prompt_ids(case)
        start = time.perf_counter()
        if setting.algorithm == EXACT:
            assert isinstance(self.model, BigramModel) and isinstance(constraint.automaton, TokenAutomaton)
            tokens, log_prob = most_probable(self.model, prompt, constraint.automaton, MAX_TOKENS, lower_bound)
        else:
            options = SearchOptions(
                MAX_TOKENS, beams=setting.beams, length_penalty=setting.length_penalty,
                algorithm=setting.algorithm,  # type: ignore[arg-type]
            )
            best = generate(self.model, prompt, constraint, options)[0]
            tokens, log_prob = best.tokens, best.log_prob
        seconds = time.perf_counter() - start
        content = b"".join(self.files.vocabulary.tokens[token] or b"" for token in tokens[:-1])
        return QualityAnswer(answer_text(text, content.decode()), log_prob, len(tokens), seconds)


def quality_row(
    model: QualityModel, setting: Setting, cases: Sequence[QualityCase], lower_bounds: dict[str, float]
) -> Row:
    """A row: means over the cases, and each case's log-prob."""
    answers = [model.answer(case, setting, lower_bounds.get(case.name, float("-inf"))) for case in cases]
    texts = [answer.text for answer in answers]
    references = [case.references for case in cases]
    has_references = all(references)
    return asdict(setting) | {
        "cases": len(cases),
        "log_prob": statistics.fmean(answer.log_prob for answer in answers),
        "tokens": statistics.fmean(answer.tokens for answer in answers),
        "words": statistics.fmean(len(words(text)) for text in texts),
        "bleu_4": bleu_4(texts, references) if has_references else None,
        "cider": cider(texts, references) if has_references else None,
        "seconds": statistics.fmean(answer.seconds for answer in answers),
        "examples": texts[:: max(1, len(texts) // 5)][:5],
        "log_probs": {case.name: round(answer.log_prob, 3) for case, answer in zip(cases, answers, strict=True)},
    }


def merge_rows(row: Row, more: Row) -> Row:
    """One row from two of a setting over different cases. BLEU and CIDEr are no means, so it has none."""
    parts = (row, more)
    cases = sum(part["cases"] for part in parts)
    means = {name: sum(part[name] * part["cases"] for part in parts) / cases for name in MEANS}
    both = {"cases": cases, "bleu_4": None, "cider": None, "log_probs": row["log_probs"] | more["log_probs"]}
    return row | means | both


def is_judged(setting: Setting) -> bool:
    """Whether texts are compared with people's. That makes sense only if the prompt names the concepts."""
    names_concepts = setting.model == "captions" and "prompt" in setting.family
    return names_concepts and setting.algorithm == DEFAULT and setting.beams == JUDGED_BEAMS


def settings(args: argparse.Namespace, model: str, family: str) -> Iterator[tuple[Setting, int | None]]:
    """The settings of a family with the number of cases; None: all. The exact solver is last: it takes lower bounds."""
    for beams in args.beams:
        for algorithm in args.algorithms:
            is_wide = algorithm == DEFAULT and beams >= WIDE_BEAMS
            yield Setting(model, family, algorithm, beams), args.references if is_wide else None
    for penalty in args.length_penalties:
        setting = Setting(model, family, DEFAULT, JUDGED_BEAMS, penalty)
        if is_judged(setting):
            yield setting, None
    if args.references:
        yield Setting(model, family, DEFAULT, REFERENCE_BEAMS), args.references
        if model == "bigram":
            yield Setting(model, family, EXACT, 0), args.references


def best_log_probs(rows: Sequence[Row], model: str, family: str) -> dict[str, float]:
    """Each case's best log-prob in the rows measured so far."""
    best: dict[str, float] = {}
    for row in rows:
        if (row["model"], row["family"]) == (model, family):
            for name, log_prob in row["log_probs"].items():
                best[name] = max(log_prob, best.get(name, float("-inf")))
    return best


def sort_key(row: Row) -> tuple[int, str, str, int]:
    """The order of the rows."""
    return MODELS.index(row["model"]), row["family"], row["algorithm"], row["beams"]


def run(args: argparse.Namespace) -> None:
    """Measure and store all rows."""
    rows = RowStore(RESULT, sort_key)
    for name in args.models:
        model = QualityModel(name, args.shared)
        dev = concept_sets_path(args.shared)
        by_family = families(name, dev, args.sets)
        if args.draw is not None:
            by_family = drawn_families(name, dev, args.sets, args.draw)
        for family, cases in by_family.items():
            feasible = [case for case in cases if model.is_feasible(case)]
            for setting, count in settings(args, name, family):
                selection = feasible if count is None else feasible[:: max(1, len(feasible) // count)][:count]
                row = extended_row(model, rows, setting, selection, args.again)
                if row is None:
                    continue
                rows.store(row, asdict(setting), threads=args.threads, max_tokens=MAX_TOKENS, sets=args.sets)
                about = f"{setting.algorithm:7} k={setting.beams:<5} p={setting.length_penalty:<4}"
                print(f"{name:17} {family:34} {about} {row['log_prob']:9.2f}  {row['seconds']:.3f} s", flush=True)


def extended_row(
    model: QualityModel, rows: RowStore, setting: Setting, cases: Sequence[QualityCase], again: bool
) -> Row | None:
    """The row of a setting over these cases, extending the stored one. None if the stored row covers all of them."""
    old = None if again else rows.find(asdict(setting))
    missing = [case for case in cases if old is None or case.name not in old["log_probs"]]
    if not missing:
        return None
    if old is None or is_judged(setting):
        old, missing = None, list(cases)
    best = best_log_probs(rows.run()["rows"], setting.model, setting.family)
    lower_bounds = {name: log_prob - 1e-3 for name, log_prob in best.items()}  # the stored ones are rounded
    row = quality_row(model, setting, missing, lower_bounds)
    return row if old is None else merge_rows(old, row)


def main() -> None:
    parser = parser_of(__doc__, threads=1)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--sets", type=int, default=200, help="concept sets of each family")
    parser.add_argument("--beams", "--k", type=int, nargs="+", default=[1, 4, 8, 16, 64, 128])
    parser.add_argument("--algorithms", nargs="+", choices=["abs", "banked"], default=["abs", "banked"])
    parser.add_argument("--length-penalties", type=float, nargs="*", default=[0.5, 0.7, 1.0])
    parser.add_argument("--references", type=int, default=40, help="cases of each family with a best known answer")
    parser.add_argument("--draw", type=int, metavar="SEED")
    parser.add_argument("--again", action="store_true", help="measure stored rows again")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    run(args)
    write_report()


if __name__ == "__main__":
    main()
