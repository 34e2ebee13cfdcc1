"""How probable the answers are that each search finds, and how they compare with what people wrote.

    python -m benchmarks.search_quality [--models captions bigram ...] [--sets 200] [--beams 1 4 8 16 64 128]

For every model, family of constraints, algorithm and number of beams one row: all cases answered one after another,
T = 32. For some of the cases the best answers are sought by the default with 256 beams, and for the bigram model the
exact optimum. --draw SEED measures concept sets drawn at random instead of evenly spread ones. Rows already in
results/search_quality.json are not measured again, so that a run may be stopped and taken up; one of fewer cases is
carried on by those that it lacks. --again measures all again.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
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
from benchmarks.bigram import BigramModel, most_probable
from benchmarks.caption_scores import bleu_4, cider, words
from benchmarks.compile import DEFAULT_SHARED
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.rows import Row, Rows
from benchmarks.search_quality_cases import PLAIN_PROMPTS, Case, drawn, families
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.text import answer_text
from decoding.forced_tokens import TokenBytes
from decoding.heuristic import find_endings, unigram_prior
from decoding.model import HuggingFaceModel, LanguageModel
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import generate

RESULT = RESULTS_DIRECTORY / "search_quality.json"
COMMAND = "python -m benchmarks.search_quality"
MODELS = ("captions", "stories260k", "tinystories-656k", "bigram")
MAX_TOKENS = 32
DEFAULT, JUDGED_BEAMS, WIDE_BEAMS, REFERENCE_BEAMS = "banked", 16, 64, 256
MEANS = ("log_prob", "tokens", "words", "seconds")
EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a row measures. `beams` is 0 where nothing is searched for: the exact optimum."""

    model: str
    family: str
    algorithm: str
    beams: int
    length_penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """One answer."""

    text: str
    log_prob: float
    tokens: int
    seconds: float


class QualityBench:
    """One model with what is made once for it. `shared` is the folder of data and models."""

    def __init__(self, name: str, shared: Path) -> None:
        folder = BUILT_IN_MODEL if name in ("captions", "bigram") else str(shared / "models" / name)
        self.files: ModelFiles = open_model_files(folder)
        self.tokenizer = Tokenizer.from_file(str(self.files.tokenizer_file))
        self.model: LanguageModel[Any] = (
            self._bigrams(shared, name) if name == "bigram" else HuggingFaceModel.load(folder, device="cpu")
        )
        self._prior = unigram_prior(self.model)
        self._endings = find_endings(self.model, self._prior)
        self.pieces: TokenBytes | None = None
        self._compiled = functools.cache(self._compile)

    def _bigrams(self, shared: Path, name: str) -> BigramModel:
        """Of CommonGen's training captions, spelled as the built-in model spells them."""
        with gzip.open(shared / "data" / "commongen" / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
            captions = [text for line in lines for text in json.loads(line)["references"]]
        encoded = self.tokenizer.encode_batch([f"{PLAIN_PROMPTS[name]} {text}" for text in captions])
        eos_ids = self.files.vocabulary.eos_ids
        return BigramModel.estimated(
            [[*one.ids, eos_ids[0]] for one in encoded], len(self.files.vocabulary.tokens), eos_ids
        )

    def _compile(self, written: str) -> tuple[Any, PreparedConstraint]:
        compiled = compile_spec(spec_from_json(json.loads(written)), self.files.vocabulary, Limits(compile_s_max=600.0))
        device = self.model.device
        return compiled.text, PreparedConstraint.prepare(
            compiled.tokens, device, prior=self._prior, pieces=self.pieces, endings=self._endings
        )

    def constraint(self, case: Case) -> PreparedConstraint:
        """The case's constraint, compiled once."""
        return self._compiled(json.dumps(case.constraint))[1]

    def prompt_ids(self, case: Case) -> list[int]:
        """The case's prompt."""
        return list(self.tokenizer.encode(case.prompt).ids)

    def fits(self, case: Case) -> bool:
        return self.constraint(case).automaton.min_tokens <= MAX_TOKENS

    def answer(self, case: Case, setting: Setting, known: float) -> Found:
        """The answer to a case; `known` is the log-prob of one already found, which helps the exact solver alone."""
        text, constraint = self._compiled(json.dumps(case.constraint))
        prompt = self.prompt_ids(case)
        started = time.perf_counter()
        if setting.algorithm == EXACT:
            assert isinstance(self.model, BigramModel)
            tokens, log_prob = most_probable(self.model, prompt, constraint.automaton, MAX_TOKENS, known)
        else:
            options = SearchOptions(MAX_TOKENS, setting.beams, setting.algorithm, length_penalty=setting.length_penalty)  # type: ignore[arg-type]
            best = generate(self.model, prompt, constraint, options)[0]
            tokens, log_prob = best.tokens, best.log_prob
        seconds = time.perf_counter() - started
        spelled = b"".join(self.files.vocabulary.tokens[token] or b"" for token in tokens[:-1])
        return Found(answer_text(text, spelled.decode()), log_prob, len(tokens), seconds)


def measured(bench: QualityBench, setting: Setting, cases: Sequence[Case], known: dict[str, float]) -> Row:
    """A row: means over the cases, and each case's log-prob."""
    found = [bench.answer(case, setting, known.get(case.name, float("-inf"))) for case in cases]
    texts = [one.text for one in found]
    references = [case.references for case in cases]
    judged = all(references)
    return asdict(setting) | {
        "cases": len(cases),
        "log_prob": statistics.fmean(one.log_prob for one in found),
        "tokens": statistics.fmean(one.tokens for one in found),
        "words": statistics.fmean(len(words(text)) for text in texts),
        "bleu_4": bleu_4(texts, references) if judged else None,
        "cider": cider(texts, references) if judged else None,
        "seconds": statistics.fmean(one.seconds for one in found),
        "examples": texts[:: max(1, len(texts) // 5)][:5],
        "log_probs": {case.name: round(one.log_prob, 3) for case, one in zip(cases, found, strict=True)},
    }


def joined(row: Row, more: Row) -> Row:
    """One row of two of a setting, over other cases each. Likeness to what people wrote is no mean: it has none."""
    parts = (row, more)
    cases = sum(one["cases"] for one in parts)
    means = {name: sum(one[name] * one["cases"] for one in parts) / cases for name in MEANS}
    both = {"cases": cases, "bleu_4": None, "cider": None, "log_probs": row["log_probs"] | more["log_probs"]}
    return row | means | both


def is_judged(setting: Setting) -> bool:
    """Whether its texts are compared with people's: only where the model is told what to write of is that worth it."""
    named = setting.model == "captions" and "prompt" in setting.family
    return named and setting.algorithm == DEFAULT and setting.beams == JUDGED_BEAMS


def settings(args: argparse.Namespace, model: str, family: str) -> Iterator[tuple[Setting, int | None]]:
    """What to measure of a family, in an order that lets the exact solver profit; with how many of the cases."""
    for beams in args.beams:
        for algorithm in args.algorithms:
            wide = algorithm == DEFAULT and beams >= WIDE_BEAMS
            yield Setting(model, family, algorithm, beams), args.references if wide else None
    for penalty in args.length_penalties:
        setting = Setting(model, family, DEFAULT, JUDGED_BEAMS, penalty)
        if is_judged(setting):
            yield setting, None
    if args.references:
        yield Setting(model, family, DEFAULT, REFERENCE_BEAMS), args.references
        if model == "bigram":
            yield Setting(model, family, EXACT, 0), args.references


def best_known(rows: Sequence[Row], model: str, family: str) -> dict[str, float]:
    """Each case's best log-prob in the rows measured so far."""
    best: dict[str, float] = {}
    for row in rows:
        if (row["model"], row["family"]) == (model, family):
            for name, log_prob in row["log_probs"].items():
                best[name] = max(log_prob, best.get(name, float("-inf")))
    return best


def place(row: Row) -> tuple[int, str, str, int]:
    """Where a row stands among all."""
    return MODELS.index(row["model"]), row["family"], row["algorithm"], row["beams"]


def run(args: argparse.Namespace) -> None:
    rows = Rows(RESULT, COMMAND, place)
    for name in args.models:
        bench = QualityBench(name, args.shared)
        dev = args.shared / "data" / "commongen" / "dev.jsonl"
        every = families(name, dev, args.sets) if args.draw is None else drawn(name, dev, args.sets, args.draw)
        for family, cases in every.items():
            fitting = [case for case in cases if bench.fits(case)]
            for setting, some in settings(args, name, family):
                chosen = fitting if some is None else fitting[:: max(1, len(fitting) // some)][:some]
                row = carried_on(bench, rows, setting, chosen, args.again)
                if row is None:
                    continue
                rows.store(row, asdict(setting), threads=args.threads, max_tokens=MAX_TOKENS, sets=args.sets)
                about = f"{setting.algorithm:7} k={setting.beams:<5} p={setting.length_penalty:<4}"
                print(f"{name:17} {family:34} {about} {row['log_prob']:9.2f}  {row['seconds']:.3f} s", flush=True)


def carried_on(bench: QualityBench, rows: Rows, setting: Setting, cases: Sequence[Case], again: bool) -> Row | None:
    """The row of a setting over all these cases, with what is stored of it; None where that is all of it."""
    old = None if again else rows.find(asdict(setting))
    lacking = [case for case in cases if old is None or case.name not in old["log_probs"]]
    if not lacking:
        return None
    if old is None or is_judged(setting):
        old, lacking = None, list(cases)
    best = best_known(rows.run()["rows"], setting.model, setting.family)
    known = {name: log_prob - 1e-3 for name, log_prob in best.items()}  # they are rounded
    row = measured(bench, setting, lacking, known)
    return row if old is None else joined(old, row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--sets", type=int, default=200, help="concept sets of each family")
    parser.add_argument("--beams", "--k", type=int, nargs="+", default=[1, 4, 8, 16, 64, 128])
    parser.add_argument("--algorithms", nargs="+", choices=["abs", "banked"], default=["abs", "banked"])
    parser.add_argument("--length-penalties", type=float, nargs="*", default=[0.5, 0.7, 1.0])
    parser.add_argument("--references", type=int, default=40, help="cases of each family whose best answer is sought")
    parser.add_argument("--draw", type=int, metavar="SEED")
    parser.add_argument("--again", action="store_true", help="measure rows anew")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("ABS_SHARED", DEFAULT_SHARED)))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    run(args)
    write_report()


if __name__ == "__main__":
    main()
