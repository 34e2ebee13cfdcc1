"""Cost and log-probability over the beam width, k = 1 to 256, beside Algorithm 1 and beams without a constraint.

    python -m benchmarks.beam_widths [--cases 8]

The built-in model, keyword sets of CommonGen in any order, T = 32, `length_penalty` 0. "unconstrained" is transformers'
own beam search with as many beams. Each case is measured with all searches one after another, so that their times are
paired. Writes results/beam_widths.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from app.settings import BUILT_IN_MODEL
from benchmarks.ablation import CountingModel
from benchmarks.compile import DEFAULT_SHARED, machine
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.search_quality import MAX_TOKENS, QualityBench
from benchmarks.search_quality_cases import Case, families
from decoding.options import SearchOptions
from decoding.search import generate

WIDTHS = (1, 2, 4, 8, 16, 32, 63, 64, 128, 256)
SEARCHES = ("banked", "abs", "unconstrained")
Row = dict[str, Any]


def constrained(bench: QualityBench, case: Case, algorithm: str, beams: int) -> dict[str, float]:
    """Ours: seconds, log-prob, and the rows that the model read."""
    model = CountingModel(bench.model)
    options = SearchOptions(MAX_TOKENS, beams, algorithm, length_penalty=0.0)  # type: ignore[arg-type]
    started = time.perf_counter()
    best = generate(model, bench.prompt_ids(case), bench.constraint(case), options)[0]
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "log_prob": best.log_prob, "rows": model.rows, "gap": best.proven_gap or 0.0}


@torch.inference_mode()
def unconstrained(model: Any, prompt: list[int], beams: int) -> dict[str, float]:
    """transformers' beam search: seconds, and the sum of the log-probs of its best text."""
    ids = torch.tensor([prompt])
    started = time.perf_counter()
    found = model.generate(
        ids, attention_mask=torch.ones_like(ids), num_beams=beams, do_sample=False, max_new_tokens=MAX_TOKENS,
        length_penalty=0.0, pad_token_id=model.config.eos_token_id, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    text = found.sequences[0, len(prompt) :]
    log_probs = model(found.sequences[:1]).logits[0, len(prompt) - 1 : -1].log_softmax(dim=1)
    own = log_probs.gather(1, text[:, None])[:, 0]
    ends = (text == model.config.eos_token_id).nonzero()
    length = int(ends[0]) + 1 if len(ends) else len(text)
    return {"seconds": seconds, "log_prob": float(own[:length].sum()), "rows": beams * length, "gap": 0.0}


def measure(cases: int, shared: Path) -> list[Row]:
    bench = QualityBench("captions", shared)
    model = AutoModelForCausalLM.from_pretrained(BUILT_IN_MODEL, dtype=torch.float32).eval()
    every = families("captions", shared / "data" / "commongen" / "dev.jsonl", cases)["unordered"]
    found = []
    for width in WIDTHS:
        timed: dict[str, list[dict[str, float]]] = {name: [] for name in SEARCHES}
        for case in every:
            timed["banked"].append(constrained(bench, case, "banked", width))
            timed["abs"].append(constrained(bench, case, "abs", width))
            timed["unconstrained"].append(unconstrained(model, bench.prompt_ids(case), width))
        for name, points in timed.items():
            means = {key: statistics.fmean(point[key] for point in points) for key in ("log_prob", "rows", "gap")}
            seconds = statistics.median(point["seconds"] for point in points)
            found.append({"search": name, "beams": width, "seconds": seconds, **means})
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("ABS_SHARED", DEFAULT_SHARED)))
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    run = {
        "date": datetime.date.today().isoformat(), "machine": machine(), "threads": 1, "cases": args.cases,
        "command": f"python -m benchmarks.beam_widths --cases {args.cases}", "rows": measure(args.cases, args.shared),
    }  # fmt: skip
    (RESULTS_DIRECTORY / "beam_widths.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
