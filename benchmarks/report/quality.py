"""RESULTS.md's sections about answer quality and about beam width."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from functools import partial
from math import inf, sqrt
from typing import Any, NamedTuple

from benchmarks.report.layout import picture, section, short_number, table

ALGORITHMS = ("abs", "banked")
REFERENCE = 256  # beams of the default search, whose answers are the reference if the optimum is unknown
GOALS = ((16, 2.0), (64, 0.5))  # beams, and the allowed gap of the default search in percent
SEARCHES = ("banked", "abs", "unconstrained")
QUALITY_NOTES = f"""
Mean log-prob of the answers in nats, by algorithm and number of beams; all answers satisfy their constraint. "Best
known" is the exact optimum of the bigram model, and elsewhere the best answer to each case of all rows, including those
of the default with {REFERENCE} beams, over fewer cases; the gap is by how much more the default's answers to these
cases cost, in percent, "±" its standard error over the cases. "Ahead": the share of cases in which the default with 8
beams finds a more probable answer than Algorithm 1 with 128, or the same.
"""
LENGTH_NOTES = """
The length penalty, length ** p, by which the sum of an answer's log-probs is divided for the final choice: BLEU-4,
CIDEr, and mean length in words, against the references of CommonGen's validation split; 16 beams.
"""
WIDTH_NOTES = """
Keyword sets of CommonGen in any order, the built-in model, 32 tokens, `length_penalty` 0: median seconds, mean
log-probability in nats, mean rows read by the model, for each beam width k. "unconstrained" is transformers' beam
search without a constraint, whose log-probability is of a text that need not contain the keywords.
"""
JSON_NOTES = """
The best answers to the JSON schemas of the ablation, by what generation writes; any order of properties with the white
space `spaced`. All figures are means over the schemas, in nats: the log-prob of an answer, the same for each character
of its value without white space, and the log-prob for each character of the values alone, as plain text behind the
prompt. "First": in how many cases no form finds a more probable answer. The last columns are the log-prob of the same
values in other white space, in the tokenizer's own tokens and without EOS.
"""
Row = dict[str, Any]
FamilyRows = dict[tuple[str, int], Row]  # by algorithm and beams


def quality_section(run: dict[str, Any]) -> str:
    """Log-probs, gaps to the best known answers, goals, and the length penalty."""
    rows = run["rows"]
    penalties = _penalties(rows)
    lengths = (LENGTH_NOTES, penalties) if penalties else ()
    parts = (_log_probs(rows), _gaps(rows), _goals(rows), *lengths)
    return section("What the searches find", run, QUALITY_NOTES, *parts, details=(f"T = {run['max_tokens']}",))


def _families(rows: Iterable[Row]) -> dict[tuple[str, str], FamilyRows]:
    """The rows without a length penalty, by model and family."""
    families: dict[tuple[str, str], FamilyRows] = {}
    for row in rows:
        family = families.setdefault((row["model"], row["family"]), {})
        if row["length_penalty"] == 0.0:
            family[row["algorithm"], row["beams"]] = row
    return families


def _beams(rows: Sequence[Row]) -> list[int]:
    return sorted({row["beams"] for row in rows if row["algorithm"] in ALGORITHMS} - {REFERENCE})


def _log_probs(rows: Sequence[Row]) -> str:
    beams = _beams(rows)
    body = []
    for (model, family), by_setting in _families(rows).items():
        for algorithm in ALGORITHMS:
            by_beams = [by_setting.get((algorithm, k)) for k in beams]
            if not any(by_beams):
                continue
            cases = next(row["cases"] for row in by_beams if row)
            cells = [f"{row['log_prob']:.1f}" if row else "" for row in by_beams]
            seconds = [f"{row['seconds']:.2f}" for row in by_beams if row and row["beams"] == 16]
            body.append([model, family, f"{cases}", algorithm, *cells, *(seconds or [""])])
    return table(["model", "constraints", "cases", "algorithm", *(f"k = {k}" for k in beams), "s, k = 16"], body)


def _gaps(rows: Sequence[Row]) -> str:
    beams = [*_beams(rows), REFERENCE]
    body = []
    for (model, family), by_setting in _families(rows).items():
        best = _best_known(by_setting)
        if best is not None:
            gaps = [_gap_cell(gap(by_setting.get(("banked", k)), best)) for k in beams]
            body.append([model, family, f"{best['cases']}", f"{best['log_prob']:.2f}", *gaps, _ahead(by_setting)])
    head = ["model", "constraints", "cases", "best known", *(f"gap %, k = {k:,}" for k in beams)]
    return table([*head, "ahead"], body)


def _best_known(by_setting: FamilyRows) -> Row | None:
    """The exact optimum, or the best answer to each case.

    The best answers are those of all rows for cases that were answered with REFERENCE beams.
    """
    exact, reference = by_setting.get(("exact", 0)), by_setting.get(("banked", REFERENCE))
    if exact is not None or reference is None:
        return exact
    rows = by_setting.values()
    best = {name: max(row["log_probs"].get(name, -inf) for row in rows) for name in reference["log_probs"]}
    return reference | {"log_probs": best, "log_prob": statistics.fmean(best.values())}


def _goals(rows: Sequence[Row]) -> str:
    """Which families meet the goals.

    The exact optimum is the comparison if it is known, and REFERENCE alone otherwise.
    """
    families = _families(rows)
    goals = []
    for beams, gap_max in GOALS:
        count, exceeded = _missed(families, beams, gap_max, exact=True)
        _, missed_reference = _missed(families, beams, gap_max, exact=False)
        goals.append(
            f"within {gap_max:g} % at k = {beams} of the exact optimum if it is known, else of the default with "
            f"{REFERENCE:,} beams: met by {count - len(exceeded)} of {count} families{_exceptions(exceeded)} (of the "
            f"default with {REFERENCE:,} beams in all families: {count - len(missed_reference)} of {count})"
        )
    ahead, comparisons = families_ahead(rows)
    goals.append(f"a more probable mean with 8 beams than Algorithm 1's with 128: {ahead} of {comparisons} families")
    shares = {name: _ahead(by_setting) for name, by_setting in families.items()}
    losses = [f"{model}, {family} ({share})" for (model, family), share in shares.items() if share not in ("", "100 %")]
    goals.append("ahead on every case" + (_exceptions(losses) or ": met"))
    return "Goals:\n\n" + "\n".join(f"- {goal}" for goal in goals)


def _missed(
    families: dict[tuple[str, str], FamilyRows], beams: int, gap_max: float, *, exact: bool
) -> tuple[int, list[str]]:
    """The number of comparable families, and those with too large gaps.

    exact  prefers the exact optimum
    """
    families_over, count = [], 0
    for (model, family), by_setting in families.items():
        reference = (exact and by_setting.get(("exact", 0))) or by_setting.get(("banked", REFERENCE))
        row = by_setting.get(("banked", beams))
        if not reference or row is None:
            continue
        count += 1
        missing = gap(row, reference)
        if missing is not None and round(missing.percent, 1) > gap_max:
            families_over.append(f"{model}, {family} ({_gap_cell(missing)} %)")
    return count, families_over


def _exceptions(missed: Sequence[str]) -> str:
    return f", missed by {', '.join(missed)}" if missed else ""


class Gap(NamedTuple):
    """How far a mean log-prob is below the best, in percent. It has the standard error too."""

    percent: float
    error: float


def gap(row: Row | None, best: Row) -> Gap | None:
    """The gap of a row over the cases of both rows. None without common cases. The error of a single case is 0."""
    names = [name for name in best["log_probs"] if name in row["log_probs"]] if row else []
    if not row or not names:
        return None
    values, optima = ([row_of["log_probs"][name] for name in names] for row_of in (row, best))
    ratio = sum(values) / sum(optima)
    residuals = [value - ratio * optimum for value, optimum in zip(values, optima, strict=True)]  # of a ratio of means
    deviation = statistics.stdev(residuals) if len(names) > 1 else 0.0
    return Gap(100 * (ratio - 1), 100 * deviation / sqrt(len(names)) / abs(statistics.fmean(optima)))


def _gap_cell(missing: Gap | None) -> str:
    if missing is None:
        return ""
    return f"{missing.percent:.1f} ± {missing.error:.1f}" if missing.error else f"{missing.percent:.1f}"


def gaps_at(rows: Sequence[Row], beams: int) -> list[float]:
    """The default's gap in percent for each comparable family. A family is comparable if it has a best known answer."""
    pairs = ((by_setting.get(("banked", beams)), _best_known(by_setting)) for by_setting in _families(rows).values())
    gaps = [gap(row, best) for row, best in pairs if best is not None]
    return [each.percent for each in gaps if each is not None]


def _pairs(by_setting: FamilyRows) -> list[tuple[float, float]]:
    """Pairs of log-probs by case, from the two compared searches.

    The first is the default with 8 beams, the second Algorithm 1 with 128.
    """
    ours, theirs = by_setting.get(("banked", 8)), by_setting.get(("abs", 128))
    if ours is None or theirs is None:
        return []
    return [(ours["log_probs"][name], other) for name, other in theirs["log_probs"].items()]


def _is_ahead(pair: tuple[float, float]) -> bool:
    return pair[0] >= pair[1] - 1e-3  # the stored log-probs are rounded


def cases_ahead(rows: Sequence[Row]) -> tuple[int, int]:
    """The cases where the default does no worse, and all cases. The default has 8 beams, Algorithm 1 has 128."""
    pairs = [pair for by_setting in _families(rows).values() for pair in _pairs(by_setting)]
    return sum(map(_is_ahead, pairs)), len(pairs)


def families_ahead(rows: Sequence[Row]) -> tuple[int, int]:
    """The families whose mean is better in that comparison, and all families."""
    columns = [list(zip(*pairs, strict=True)) for pairs in map(_pairs, _families(rows).values()) if pairs]
    return sum(statistics.fmean(ours) > statistics.fmean(theirs) for ours, theirs in columns), len(columns)


def _ahead(by_setting: FamilyRows) -> str:
    pairs = _pairs(by_setting)
    return f"{100 * statistics.fmean(map(_is_ahead, pairs)):.0f} %" if pairs else ""


def _penalties(rows: Sequence[Row]) -> str:
    """One line per p of each family with several values of p."""
    body = []
    for model, family in _families(rows):
        setting = (model, family, "banked", 16)
        by_penalty = [row for row in rows if (row["model"], row["family"], row["algorithm"], row["beams"]) == setting]
        if len(by_penalty) < 2 or by_penalty[0]["bleu_4"] is None:
            continue
        for row in sorted(by_penalty, key=lambda row: float(row["length_penalty"])):
            figures = (row["bleu_4"], row["cider"], row["words"], row["log_prob"])
            body.append([model, family, f"{row['length_penalty']:g}", *(f"{figure:.1f}" for figure in figures)])
    head = ["model", "constraints", "p", "BLEU-4", "CIDEr", "words", "log-prob"]
    return table(head, body) if body else ""


def beam_widths_section(run: dict[str, Any]) -> str:
    """Cost and log-probability over the beam width."""
    rows = {(row["search"], row["beams"]): row for row in run["rows"]}
    widths = sorted({beams for _, beams in rows})
    body = []
    for width in widths:
        columns = [rows[name, width] for name in SEARCHES]
        seconds, sums = [short_number(row["seconds"]) for row in columns], [f"{row['log_prob']:.1f}" for row in columns]
        body.append([f"{width}", *seconds, *sums, *(f"{row['rows']:,.0f}" for row in columns)])
    head = ["k", *(f"{figure}, {name}" for figure in ("s", "nats", "rows") for name in SEARCHES)]
    ratio = rows["banked", 64]["seconds"] / rows["banked", 63]["seconds"]
    return section(
        "Over the beam width", run, WIDTH_NOTES, table(head, body),
        f"64 beams take {ratio:.2f} times the time of 63.",
        picture("beam_widths", "Seconds and log-probability over the beam width",
                partial(_draw_widths, rows, widths), (9.0, 3.6), (1, 2)),
        details=(f"{run['cases']} cases",),
    )  # fmt: skip


def json_forms_section(run: dict[str, Any]) -> str:
    """Log-probs of JSON answers by white space and order."""
    body = [
        [row["model"], row["form"], f"{row['log_prob']:.1f}", f"{row['per_character']:.3f}",
         f"{row['plain_per_character']:.3f}", f"{row['tokens']:.0f}", f"{row['first']} of {row['cases']}",
         *(f"{value:.1f}" for value in row["spelled"].values())]
        for row in run["rows"]
    ]  # fmt: skip
    head = ["model", "form", "log-prob", "a character", "values alone, a character", "tokens", "first"]
    head += run["rows"][0]["spelled"]
    return section("How JSON is written", run, JSON_NOTES, table(head, body), details=(f"{run['beams']} beams",))


def _draw_widths(rows: FamilyRows, widths: list[int], panels: list[Any]) -> None:
    cost, quality = panels
    for name in SEARCHES:
        cost.plot(widths, [rows[name, width]["seconds"] for width in widths], marker="o", label=name)
    for name in ("banked", "abs"):
        quality.plot(widths, [rows[name, width]["log_prob"] for width in widths], marker="o", label=name)
    cost.set_yscale("log")
    for panel, label in ((cost, "seconds for a request"), (quality, "log-prob, nats")):
        panel.set_xscale("log", base=2)
        panel.set_xlabel("beams")
        panel.set_ylabel(label)
        panel.legend()
