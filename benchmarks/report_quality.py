"""The section of RESULTS.md about what the searches find, from results/search_quality.json."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from math import inf, sqrt
from typing import Any, NamedTuple

from benchmarks.report_tables import table, where

ALGORITHMS = ("abs", "banked")
REFERENCE = 256  # beams of the default whose answers stand for the best known
GOALS = ((16, 2.0), (64, 0.5))  # beams, and by how many percent the default may miss the exact optimum or REFERENCE
NOTES = f"""
Mean log-prob of the answers in nats, by algorithm and number of beams; all answers satisfy their constraint. "Best
known" is the exact optimum of the bigram model, and elsewhere the best answer to each case of all rows measured, the
default with {REFERENCE} beams among them, over fewer cases; the gap is by how much more the default's answers to these
cases cost, in percent, "±" its standard error over the cases. "Ahead": the share of cases in which the default with 8
beams finds a more probable answer than Algorithm 1 with 128, or the same.
"""
LENGTH_NOTES = """
By what the answers' sums are divided for the last choice, length ** p: BLEU-4, CIDEr, and mean length in words, against
the references of CommonGen's validation split; 16 beams.
"""


def quality_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    rows = run["rows"]
    parts = ["## What the searches find", where(run, f"T = {run['max_tokens']}"), *run.get("notes", ()), NOTES]
    parts += [_probabilities(rows), _gaps(rows), _goals(rows)]
    penalties = _penalties(rows)
    if penalties:
        parts += [LENGTH_NOTES, penalties]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _families(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["model"], row["family"]) for row in rows))


def _plain(rows: Iterable[dict[str, Any]], model: str, family: str) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of a family without a length penalty, by algorithm and beams."""
    return {
        (row["algorithm"], row["beams"]): row
        for row in rows
        if (row["model"], row["family"], row["length_penalty"]) == (model, family, 0.0)
    }


def _beams(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted({row["beams"] for row in rows if row["algorithm"] in ALGORITHMS} - {REFERENCE})


def _probabilities(rows: Sequence[dict[str, Any]]) -> str:
    beams = _beams(rows)
    body = []
    for model, family in _families(rows):
        found = _plain(rows, model, family)
        for algorithm in ALGORITHMS:
            own = [found.get((algorithm, k)) for k in beams]
            if not any(own):
                continue
            cases = next(row["cases"] for row in own if row)
            shown = [f"{row['log_prob']:.1f}" if row else "" for row in own]
            seconds = [f"{row['seconds']:.2f}" for row in own if row and row["beams"] == 16]
            body.append([model, family, f"{cases}", algorithm, *shown, *(seconds or [""])])
    return table(["model", "constraints", "cases", "algorithm", *(f"k = {k}" for k in beams), "s, k = 16"], body)


def _gaps(rows: Sequence[dict[str, Any]]) -> str:
    beams = _beams(rows)
    body = []
    for model, family in _families(rows):
        found = _plain(rows, model, family)
        known = found.get(("exact", 0)) or _best_of(found)
        if known is None:
            continue
        gaps = [_told(gap(found.get(("banked", k)), known)) for k in (*beams, REFERENCE)]
        body.append([model, family, f"{known['cases']}", f"{known['log_prob']:.2f}", *gaps, _ahead(found)])
    head = ["model", "constraints", "cases", "best known", *(f"gap %, k = {k:,}" for k in (*beams, REFERENCE))]
    return table([*head, "ahead"], body)


def _goals(rows: Sequence[dict[str, Any]]) -> str:
    """Which families keep the goals, whose yardstick is the exact optimum or REFERENCE, not the best of all rows."""
    said = []
    for beams, most in GOALS:
        missed, asked = [], 0
        for model, family in _families(rows):
            found = _plain(rows, model, family)
            known = found.get(("exact", 0)) or found.get(("banked", REFERENCE))
            own = found.get(("banked", beams))
            if known is None or own is None:
                continue
            asked += 1
            missing = gap(own, known)
            if missing is not None and round(missing.percent, 1) > most:
                missed.append(f"{model}, {family} ({_told(missing)} %)")
        short = f"within {most:g} % of the exact optimum, or of the default with {REFERENCE:,} beams, at k = {beams}"
        said.append(f"{short}: kept by {asked - len(missed)} of {asked} families" + _but(missed))
    ahead, asked = means_ahead_and_asked(rows)
    said.append(f"a more probable mean with 8 beams than Algorithm 1's with 128: {ahead} of {asked} families")
    shares = {(model, family): _ahead(_plain(rows, model, family)) for model, family in _families(rows)}
    behind = [f"{model}, {family} ({share})" for (model, family), share in shares.items() if share not in ("", "100 %")]
    said.append("ahead on every case" + (_but(behind) if behind else ": kept"))
    return "Goals: " + "; ".join(said) + "."


def _but(missed: Sequence[str]) -> str:
    return f", missed by {', '.join(missed)}" if missed else ""


def _best_of(found: dict[tuple[str, int], dict[str, Any]]) -> dict[str, Any] | None:
    """In place of an exact row: the best answer of all rows to each case that was answered with REFERENCE beams."""
    wide = found.get(("banked", REFERENCE))
    if wide is None:
        return None
    best = {name: max(row["log_probs"].get(name, -inf) for row in found.values()) for name in wide["log_probs"]}
    return wide | {"log_probs": best, "log_prob": statistics.fmean(best.values())}


class Gap(NamedTuple):
    """By how many percent a mean log-prob is below the best known, and the standard error of that."""

    percent: float
    error: float


def gap(row: dict[str, Any] | None, known: dict[str, Any]) -> Gap | None:
    """The gap of a row over the cases of both; None where there is none. Of one case the error is 0."""
    if row is None:
        return None
    names = [name for name in known["log_probs"] if name in row["log_probs"]]
    if not names:
        return None
    own, best = ([one["log_probs"][name] for name in names] for one in (row, known))
    ratio = sum(own) / sum(best)
    residuals = [mine - ratio * other for mine, other in zip(own, best, strict=True)]  # of a ratio of two means
    spread = statistics.stdev(residuals) if len(names) > 1 else 0.0
    return Gap(100 * (ratio - 1), 100 * spread / sqrt(len(names)) / abs(statistics.fmean(best)))


def _told(missing: Gap | None) -> str:
    if missing is None:
        return ""
    return f"{missing.percent:.1f} ± {missing.error:.1f}" if missing.error else f"{missing.percent:.1f}"


def gaps_at(rows: Sequence[dict[str, Any]], beams: int) -> list[float]:
    """The gap of each family whose best is known, in percent, of the default with so many beams."""
    found = [_plain(rows, model, family) for model, family in _families(rows)]
    known = [(one.get(("banked", beams)), one.get(("exact", 0)) or _best_of(one)) for one in found]
    gaps = [gap(own, best) for own, best in known if best is not None]
    return [one.percent for one in gaps if one is not None]


def ahead_and_asked(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """In how many cases the default with 8 beams does no worse than Algorithm 1 with 128, and how many there are."""
    pairs = [pair for model, family in _families(rows) for pair in _pairs(_plain(rows, model, family))]
    return sum(own >= other - 1e-3 for own, other in pairs), len(pairs)


def means_ahead_and_asked(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """In how many families the mean is more probable by the same comparison, and how many there are."""
    means = [_means(_plain(rows, model, family)) for model, family in _families(rows)]
    ahead = [ours > theirs for ours, theirs in filter(None, means)]
    return sum(ahead), len(ahead)


def _pairs(found: dict[tuple[str, int], dict[str, Any]]) -> list[tuple[float, float]]:
    """The log-probs of the default with 8 beams and of Algorithm 1 with 128, case by case."""
    ours, theirs = found.get(("banked", 8)), found.get(("abs", 128))
    if ours is None or theirs is None:
        return []
    return [(ours["log_probs"][name], other) for name, other in theirs["log_probs"].items()]


def _means(found: dict[tuple[str, int], dict[str, Any]]) -> tuple[float, float] | None:
    """The means of the same, over the same cases."""
    pairs = _pairs(found)
    return (statistics.fmean(own for own, _ in pairs), statistics.fmean(other for _, other in pairs)) if pairs else None


def _ahead(found: dict[tuple[str, int], dict[str, Any]]) -> str:
    pairs = _pairs(found)
    if not pairs:
        return ""
    return f"{100 * statistics.fmean(own >= other - 1e-3 for own, other in pairs):.0f} %"


def _penalties(rows: Sequence[dict[str, Any]]) -> str:
    """One line for each p of a family in which more than one was measured."""
    body = []
    for model, family in _families(rows):
        some = [
            row
            for row in rows
            if (row["model"], row["family"], row["algorithm"], row["beams"]) == (model, family, "banked", 16)
        ]
        if len(some) < 2 or some[0]["bleu_4"] is None:
            continue
        for row in sorted(some, key=lambda row: float(row["length_penalty"])):
            figures = (row["bleu_4"], row["cider"], row["words"], row["log_prob"])
            body.append([model, family, f"{row['length_penalty']:g}", *(f"{figure:.1f}" for figure in figures)])
    head = ["model", "constraints", "p", "BLEU-4", "CIDEr", "words", "log-prob"]
    return table(head, body) if body else ""
