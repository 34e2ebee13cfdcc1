"""Which models groups of processes take, and what a lost process ends."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from decoding.errors import GroupLost, ModelUnavailable, PromptEmpty
from decoding.model import HuggingFaceModel, TensorParallelModel
from decoding.model.follower import repeat_calls
from tests.decoding.model.compared_steps import compare_steps, feed
from tests.decoding.random_models import bloom_of, gpt2_of, llama_of
from tests.fake_models import HashModel
from tests.lora_adapters import PREFIX, WEIGHTS, write_adapter
from tests.servers.processes import until


def lost_group(folder: Path, losses: list[str], **options: Any) -> TensorParallelModel:
    return TensorParallelModel.load(str(folder), size=2, on_loss=losses.append, **options)


@pytest.mark.long
def test_a_model_with_the_plain_cache_is_shared_too(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    llama_of(attn_implementation="eager").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 32,
    }}))
    single = HuggingFaceModel.load(str(folder))
    group = TensorParallelModel.load(str(folder), size=2)
    try:
        assert group.supports_batching is single.supports_batching is False
        compare_steps(group, single, 1)
    finally:
        group.close()


def test_followers_free_the_sessions_of_the_first_process() -> None:
    model, held = HashModel(7, (0,)), list[int]()
    prefill = model.prefill

    def counted(ids: Any) -> Any:
        gc.collect()
        held.append(sum(type(each).__name__ == "PrefixSession" for each in gc.get_objects()))
        return prefill(ids)

    model.prefill = counted  # type: ignore[method-assign]
    calls: list[list[Any]] = [
        [[], "prefill", "", 1, [2]], [[], "step", [[1, [0, 0], [[3], [4]], None]]], [[], "prefill", "", 2, [2]],
        [[1], "prefill", "", 3, [5]], [[2, 3], "score", "", [1], [2]], [[], "prefill", "", 4, [5]], [[], "close"],
        [[], "prefill", "", 5, [5]],
    ]  # fmt: skip
    repeat_calls({"": model}, map(json.dumps, calls))
    assert [count - held[0] for count in held] == [0, 1, 1, 0]


def test_a_killed_process_ends_its_group(tmp_path: Path) -> None:
    llama_of(bos_token_id=None).save_pretrained(tmp_path)
    losses: list[str] = []
    group = lost_group(tmp_path, losses)
    try:
        compare_steps(group, HuggingFaceModel.load(str(tmp_path)), 1)
        session, _ = group.prefill([1])
        with pytest.raises(PromptEmpty):  # an error of the caller leaves the group alone
            group.prefill([])
        group.step([feed(session, [0], torch.tensor([[3]]))])
        os.kill(group.followers[0].pid, signal.SIGKILL)
        until(lambda: losses, "the loss is reported")
        with pytest.raises(GroupLost, match="status -9"):
            group.step([feed(session, [0], torch.tensor([[3]]))])
        assert group.ranks_alive == 1 and len(losses) == 1
    finally:
        group.close()
    assert len(losses) == 1


@pytest.mark.long
def test_a_stopped_process_ends_its_group_in_time(tmp_path: Path) -> None:
    llama_of().save_pretrained(tmp_path)
    losses: list[str] = []
    group = lost_group(tmp_path, losses, timeout_s=5.0)
    try:
        session, _ = group.prefill([1])
        os.kill(group.followers[0].pid, signal.SIGSTOP)
        with pytest.raises(GroupLost, match="a pass failed"):
            group.step([feed(session, [0], torch.tensor([[3]]))])
        assert len(losses) == 1 and "a pass failed" in losses[0]
    finally:
        os.kill(group.followers[0].pid, signal.SIGCONT)
        group.close()


@pytest.mark.long
def test_calls_fail_only_after_the_report_of_a_loss(tmp_path: Path) -> None:
    llama_of(bos_token_id=None).save_pretrained(tmp_path)
    reported, released = threading.Event(), threading.Event()

    def report(reason: str) -> None:
        reported.set()
        released.wait()

    group = TensorParallelModel.load(str(tmp_path), size=2, on_loss=report)
    try:
        session, _ = group.prefill([1])
        os.kill(group.followers[0].pid, signal.SIGKILL)
        assert reported.wait(30.0)
        with ThreadPoolExecutor(1) as caller:
            try:
                call = caller.submit(group.step, [feed(session, [0], torch.tensor([[3]]))])
                with pytest.raises(TimeoutError):
                    call.result(1.0)
            finally:
                released.set()
            with pytest.raises(GroupLost, match="status -9"):
                call.result()
    finally:
        group.close()


@pytest.mark.long
def test_models_that_cannot_be_shared_are_refused(tmp_path: Path) -> None:
    gpt2_of().save_pretrained(tmp_path / "gpt2")
    bloom_of().save_pretrained(tmp_path / "bloom")
    llama_of().save_pretrained(tmp_path / "llama")
    for name, options, words in (
        ("gpt2", {"size": 2}, "type 'gpt2'"), ("bloom", {"size": 2}, "type 'bloom'"),
        ("llama", {"size": 3}, "4 num_attention_heads"), ("llama", {"size": 4}, "2 num_key_value_heads"),
        ("llama", {"size": 2, "device": "abacus"}, "'abacus'"), ("none", {"size": 2}, "none"),
        ("llama", {"size": 2, "dtype": "int8"}, "int8"),
    ):
        with pytest.raises(ModelUnavailable, match=words):
            TensorParallelModel.load(str(tmp_path / name), **options)  # type: ignore[arg-type]


@pytest.mark.long
def test_a_group_does_not_start_with_an_unfit_adapter(tmp_path: Path) -> None:
    bare = llama_of()
    bare.save_pretrained(tmp_path / "model")
    folder = write_adapter(tmp_path / "a", bare)
    weights = load_file(folder / WEIGHTS)
    key = f"{PREFIX}model.layers.0.self_attn.o_proj.lora_A.weight"
    save_file(weights | {key: weights[key][:, :12].contiguous()}, folder / WEIGHTS)  # the half of one process
    with pytest.raises(ModelUnavailable, match=r"'a' .* 24 inputs"):
        TensorParallelModel.load(str(tmp_path / "model"), size=2, adapters={"a": str(folder)})
