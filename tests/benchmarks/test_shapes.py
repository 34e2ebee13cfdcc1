"""The benchmark of real shapes measures steps, and its report states them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch

from benchmarks.decoding import shapes
from benchmarks.decoding.shapes import SHAPES, Shape, ShapeRun, build_model, shape_rows, twin_of
from benchmarks.report.decoding import shapes_section
from benchmarks.report.results_page import stored_runs

TINY = Shape("gpt2", {"model_type": "gpt2", "vocab_size": 50_304, "n_embd": 16, "n_head": 2})
STATE_SPACE = Shape("gpt2", {"model_type": "mamba", "vocab_size": 50_304, "hidden_size": 16, "num_hidden_layers": 2})


@pytest.mark.parametrize("shape", [TINY, STATE_SPACE])
@pytest.mark.sample(1)
@torch.inference_mode()
def test_every_method_is_measured_step_by_step(shape: Shape, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", shape)
    args = argparse.Namespace(
        layers=1, device="cpu", dtype="float32", shared=shared, systems=["ours", "variant", "transformers"],
        clock="process",
        prompts=[5], beams=[1, 2], samples=[2], turns=1, tokens=7,
    )  # fmt: skip
    rows = list(shape_rows(ShapeRun("tiny", args), args))
    assert [(row["method"], row["k"]) for row in rows] == [("greedy", 1), ("beams", 1), ("beams", 2), ("sample", 2)]
    assert [row["rows"] for row in rows] == [1, 3, 6, 2]
    assert ["variant" in row for row in rows] == [True, False, False, False] and rows[0]["variant"] > 0
    assert all(0 < row["model"] < row["ours"] and row["transformers"] > 0 for row in rows)
    assert (rows[0]["layers"], rows[0]["vocabulary"], rows[0]["tokens"]) == (1, 50_304, 50_257)


def test_a_twin_shares_weights_and_not_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", TINY)
    model = build_model("tiny", 1, "cpu", "float32")
    twin = twin_of(model)
    assert twin.lm_head is not model.lm_head and twin.config is not model.config
    assert twin.lm_head.weight is model.lm_head.weight is twin.get_input_embeddings().weight


def test_reduced_depth_keeps_the_last_kinds_of_layers() -> None:
    for shape in ("gemma-3-270m", "gpt-oss-20b"):
        assert SHAPES[shape].config["layer_types"][-2:] == ["sliding_attention", "full_attention"]
        assert len(SHAPES[shape].config["layer_types"]) == SHAPES[shape].config["num_hidden_layers"]
    assert set(shapes.PEERS) == {"llguidance", "xgrammar"}


def test_the_section_has_a_column_for_steps_with_graphs() -> None:
    run = stored_runs()["shapes_cuda"]
    run["rows"][0]["graphs"] = 98_765.0
    text = shapes_section(run)
    assert "| model (rows) | with graphs, ms | transformers, ms |" in text and text.count("|  | 98,765 | ") == 1
