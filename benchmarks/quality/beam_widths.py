"""Measures cost and log-probability over the beam width k.

The baselines are Algorithm 1 and beam search without a constraint.

    python -m benchmarks.quality.beam_widths [--cases 8]

The built-in model, keyword sets of CommonGen in any order, T = 32, `length_penalty` 0. "unconstrained" is transformers'
own beam search with as many beams. All searches run one after another on each case, so that their times are paired.
Writes results/beam_widths.json and RESULTS.md.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from app.settings import BUILT_IN_MODEL
from benchmarks.quality.ablation import CountingModel
from benchmarks.quality.cases import QualityCase, families
from benchmarks.quality.search_quality import MAX_TOKENS, QualityModel
from benchmarks.report import write_run
from benchmarks.runs import Row, concept_sets_path, parser_of
from decoding.options import SearchOptions
from decoding.search import generate

WIDTHS = (1, 2, 4, 8, 16, 32, 63, 64, 128, 256)
SEARCHES = ("banked", "abs", "unconstrained")


def constrained(model: QualityModel, case: QualityCase, algorithm: str, beams: int) -> dict[str, float]:
    """Our search: seconds, log-prob, and the rows that the model read."""
    counting = CountingModel(model.model)
    options = SearchOptions(MAX_TOKENS, beams=beams, algorithm=algorithm, length_penalty=0.0)  # type: ignore[arg-type]
    start = time.perf_counter()
    best = generate(counting, model.prompt_ids(case), model.constraint(case), options)[0]
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "log_prob": best.log_prob, "rows": counting.rows, "gap": best.proven_gap or 0.0}


@torch.inference_mode()
def unconstrained(model: Any, prompt: list[int], beams: int) -> dict[str, float]:
    """transformers' beam search: seconds, and the log-prob of its best text."""
    ids = torch.tensor([prompt])
    start = time.perf_counter()
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), num_beams=beams, do_sample=False, max_new_tokens=MAX_TOKENS,
        length_penalty=0.0, pad_token_id=model.config.eos_token_id, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    text = output.sequences[0, len(prompt) :]
    log_probs = model(output.sequences[:1]).logits[0, len(prompt) - 1 : -1].log_softmax(dim=1)  # [tokens, V]
    token_log_probs = log_probs.gather(1, text[:, None])[:, 0]
    ends = (text == model.config.eos_token_id).nonzero()
    length = int(ends[0]) + 1 if len(ends) else len(text)
    return {"seconds": seconds, "log_prob": float(token_log_probs[:length].sum()), "rows": beams * length, "gap": 0.0}


def width_rows(count: int, shared: Path) -> list[Row]:
    """One row for each width and search."""
    ours = QualityModel("captions", shared)
    model = AutoModelForCausalLM.from_pretrained(BUILT_IN_MODEL, dtype=torch.float32).eval()
    cases = families("captions", concept_sets_path(shared), count)["unordered"]
    rows = []
    for width in WIDTHS:
        figures: dict[str, list[dict[str, float]]] = {name: [] for name in SEARCHES}
        for case in cases:
            figures["banked"].append(constrained(ours, case, "banked", width))
            figures["abs"].append(constrained(ours, case, "abs", width))
            figures["unconstrained"].append(unconstrained(model, ours.prompt_ids(case), width))
        for name, points in figures.items():
            means = {key: statistics.fmean(point[key] for point in points) for key in ("log_prob", "rows", "gap")}
            seconds = statistics.median(point["seconds"] for point in points)
            rows.append({"search": name, "beams": width, "seconds": seconds, **means})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    write_run("beam_widths", {"threads": 1, "cases": args.cases, "rows": width_rows(args.cases, args.shared)})


if __name__ == "__main__":
    main()
