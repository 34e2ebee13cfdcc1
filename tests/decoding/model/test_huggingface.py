"""The adapter against full forward passes of the library's own models."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, BloomConfig, PreTrainedModel

from decoding.errors import PromptEmpty
from decoding.model import HuggingFaceModel, Scores, StepInput, shared_prefix, tree_attention
from decoding.model import chunked_feed as stretch
from decoding.model.own_attention import restore_attention
from decoding.model.tree_attention import Pass, PrefixSharingUnsupported, attend
from tests.decoding.random_models import ENDS, PLAIN, SHARED, V, falcon_of, gpt2_of, make_model, stablelm_of
from tests.decoding.recorded_operators import recorded_operators
from tests.decoding.tensors.recorded_graphs import HostWaits

HALF = (torch.bfloat16, torch.float16)


def _full_pass(model: PreTrainedModel, rows: list[list[int]]) -> torch.Tensor:
    """Log-probs [rows, ids, V] after each id of each row, without cache."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor(rows), use_cache=False).logits.float().log_softmax(2)  # type: ignore[no-any-return]


def _step(model: HuggingFaceModel, session: Any, parents: list[int], tokens: list[list[int]]) -> Scores:
    return model.step([StepInput(session, torch.tensor(parents), torch.tensor(tokens))])[0]


def check_against_full_passes(model: HuggingFaceModel, reference: PreTrainedModel, tolerance: float = 2e-4) -> None:
    """Compares the session with full passes while its rows change.

    Rows fork, swap, stay, double and vanish, and grow by one token or by several.
    """
    random = np.random.default_rng(0)
    prompt = random.integers(1, reference.config.vocab_size, 7).tolist()
    session, first = model.prefill(prompt)
    torch.testing.assert_close(first, _full_pass(reference, [prompt])[0, -1], atol=tolerance, rtol=0)
    rows = [prompt]
    feeds = [
        ([0, 0, 0], 1),
        ([0, 1, 2], 1),
        ([2, 0, 1], 3),
        ([1, 1], 1),
        ([0, 1], 2),
        ([1, 0, 0, 1], 1),
        ([3], 4),
        ([0], 1),
        ([0, 0], 1),
        ([1, 0], 2),
    ]
    for parents, count in feeds:
        tokens = random.integers(1, reference.config.vocab_size, (len(parents), count)).tolist()
        result = _step(model, session, parents, tokens)
        assert result.log_probs.dtype == result.token_log_probs.dtype == result.max_log_probs.dtype == torch.float32
        assert result.token_log_probs.shape == result.max_log_probs.shape == (len(parents), count - 1)
        rows = [[*rows[parent], *new_ids] for parent, new_ids in zip(parents, tokens, strict=True)]
        *before, last = _full_pass(reference, rows)[:, -count:].unbind(1)
        torch.testing.assert_close(result.log_probs, last, atol=tolerance, rtol=0)
        for index, expected in enumerate(before):
            following = torch.tensor([new_ids[index + 1] for new_ids in tokens])
            expected_scores = expected.gather(1, following[:, None])[:, 0]
            torch.testing.assert_close(result.token_log_probs[:, index], expected_scores, atol=tolerance, rtol=0)
            torch.testing.assert_close(result.max_log_probs[:, index], expected.amax(1), atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", SHARED)
def test_models_with_prefix_sharing_match_full_forward_passes(name: str) -> None:
    model = HuggingFaceModel(SHARED[name]())
    assert model.prefix_sharing_disabled_reason == ""
    check_against_full_passes(model, SHARED[name]())


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.sample(6)
def test_prompts_in_chunks_match_full_forward_passes(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shared_prefix._CHUNK_TOKENS, "cpu", size)
    model = HuggingFaceModel(SHARED[name]())
    assert model.prefix_sharing_disabled_reason == ""
    check_against_full_passes(model, SHARED[name]())


@pytest.mark.parametrize(
    ("sees", "window"),
    [
        (lambda _, __, query, key: key <= query, None),
        (lambda _, __, query, key: (key <= query) & (key > query - 5), 5),
        (lambda _, __, query, key: (key <= query) & (key > query - 4096), 4096),
    ],
)
def test_the_window_of_a_mask_is_found(sees: Callable[..., torch.Tensor], window: int | None) -> None:
    assert tree_attention._window_of(sees) == window


@pytest.mark.parametrize(
    "sees",
    [
        lambda _, __, query, key: (key <= query) & (key // 4 == query // 4),  # chunks
        lambda _, __, query, key: (query - key).abs() < 5,  # later tokens
        lambda _, __, query, key: (key <= query) & ((key > query - 5) | (key < 2)),  # the first tokens, too
    ],
)
def test_masks_that_are_no_window_are_refused(sees: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(PrefixSharingUnsupported, match="a layer sees other tokens"):
        tree_attention._window_of(sees)


@pytest.mark.parametrize("name", PLAIN)
def test_models_with_plain_caches_match_full_forward_passes(name: str) -> None:
    make, reason = PLAIN[name]
    model = HuggingFaceModel(make())
    assert reason in model.prefix_sharing_disabled_reason
    check_against_full_passes(model, make())


@pytest.mark.parametrize("make", [gpt2_of, stablelm_of], ids=["shared", "plain"])
def test_long_inputs_are_read_in_chunks(make: Callable[[], PreTrainedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretch, "PIECE_BYTES_MAX", 2 * 3 * 4 * V)  # two tokens of three rows
    check_against_full_passes(HuggingFaceModel(make()), make())


@pytest.mark.parametrize("name", ["captions", "stories260k", "tinystories-656k"])
@pytest.mark.sample(2)
def test_trained_models_match_full_forward_passes(name: str, shared: Path) -> None:
    path = shared / "models" / name
    reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True).eval()
    model = HuggingFaceModel.load(str(path))
    assert (model.prefix_sharing_disabled_reason, model.rows_independent) == ("", True)
    check_against_full_passes(model, reference)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in ("gpt2", "llama, grouped keys", "mistral, a window of 5") for dtype in HALF]
    + [("bloom, biases by distance", torch.float16), ("mpt, biases by distance, clipped", torch.bfloat16)],
)  # fmt: skip
@pytest.mark.sample(5)
def test_half_precision_log_probs_are_near_single_precision(name: str, dtype: torch.dtype) -> None:
    model = HuggingFaceModel(SHARED[name]().to(dtype))
    assert (model.tolerance, model.prefix_sharing_disabled_reason) == (0.5, "")
    check_against_full_passes(model, SHARED[name]().to(dtype).float(), tolerance=0.05)


@pytest.mark.parametrize("name", [name for name in SHARED if "biases" in name])
@pytest.mark.sample(2)
def test_linear_biases_match_full_passes_in_long_texts(name: str) -> None:
    model, reference = HuggingFaceModel(SHARED[name]()), SHARED[name]()
    prompt = np.random.default_rng(0).integers(1, V, 1000).tolist()
    session, _ = model.prefill(prompt)
    rows, parents = [prompt], [0, 0]
    for step in range(30):  # past 1,024 positions, for which biases are computed at first
        parents = parents if step else [0, 0]
        rows = [[*rows[parent], step + number + 1] for number, parent in enumerate(parents)]
        result = _step(model, session, parents, [row[-1:] for row in rows])
        parents = [1, 0]
    torch.testing.assert_close(result.log_probs, _full_pass(reference, rows)[:, -1], atol=2e-4, rtol=0)


@pytest.mark.parametrize("dtype", HALF)
def test_linear_biases_in_half_precision_pass_the_check_of_answers(dtype: torch.dtype) -> None:
    # Large weights, so that attention decides the next token.
    sizes = {"hidden_size": 64, "n_layer": 3, "n_head": 16, "initializer_range": 0.3}
    model = HuggingFaceModel(make_model(BloomConfig(**ENDS, **sizes)).to(dtype))
    assert model.supports_batching == (dtype == torch.float16)
    assert ("loses linear biases" in model.prefix_sharing_disabled_reason) == (dtype == torch.bfloat16)
    prompt = np.random.default_rng(2).integers(1, V, 1000).tolist()
    _, log_probs = model.prefill(prompt)
    token = int(log_probs.argmax())
    assert abs(float(log_probs[token]) - model.score(prompt, [token]).log_probs[0]) < model.tolerance


def test_eager_falcon_with_linear_biases_keeps_its_attention() -> None:
    eager = falcon_of(attn_implementation="eager")
    model = HuggingFaceModel(eager)
    assert "adds linear biases twice" in model.prefix_sharing_disabled_reason
    check_against_full_passes(model, falcon_of(attn_implementation="eager"))


def test_attention_that_was_replaced_is_the_library_s_again() -> None:
    model, prompt = SHARED["bloom, biases by distance"](), [[1, 2, 3]]
    expected = _full_pass(model, prompt)
    assert HuggingFaceModel(model).supports_batching
    assert torch.equal(_full_pass(model, prompt), expected)
    restore_attention(model)
    assert torch.equal(_full_pass(model, prompt), expected)
    assert not HuggingFaceModel(model).prefix_sharing_disabled_reason


def test_prefix_sharing_supports_half_precision_with_large_logits() -> None:
    reference = gpt2_of(n_embd=256, n_layer=3, n_head=4, vocab_size=2000, eos_token_id=1999).to(torch.bfloat16)
    for weight in reference.parameters():
        weight.data *= 4.0 if weight.ndim > 1 else 1.0
    reference.lm_head.weight.data *= 8.0  # of the embeddings too
    assert HuggingFaceModel(reference).prefix_sharing_disabled_reason == ""


@pytest.mark.parametrize("name", ["gpt2", "llama, large", "qwen3, normed keys"])
@pytest.mark.sample(2)
def test_decode_steps_seldom_synchronise_with_the_device(name: str) -> None:
    model = HuggingFaceModel(SHARED[name]())
    session, _ = model.prefill([1, 2])
    with recorded_operators() as recorded, HostWaits() as waits:
        for step in range(40):
            parents = torch.arange(4) // 2 if step else torch.zeros(4, dtype=torch.int64)
            model.step([StepInput(session, parents, parents[:, None])])
    assert set(waits.calls) == {"nonzero"}
    assert not {"_local_scalar_dense", "equal", "is_nonzero"} & recorded.counted.keys()
    assert 1 <= recorded.counted["nonzero"] <= 12


class ParallelExperts(torch.nn.Identity):
    """A layer whose class alone says what it is."""


def test_rows_of_models_with_experts_depend_on_the_batch() -> None:
    model = gpt2_of()
    assert HuggingFaceModel(model).rows_independent
    model.transformer.drop = ParallelExperts()
    assert not HuggingFaceModel(model).rows_independent


def test_answers_are_scored_while_another_thread_steps() -> None:
    model, tokens = HuggingFaceModel(SHARED["llama, large"]()), list(range(1, 30))
    expected = model.score([5, 6], tokens)
    session, _ = model.prefill([1, 2])

    def step_on() -> None:
        for step in range(30):
            _step(model, session, [0, 0, 0] if step == 0 else [2, 0, 1], [[1], [2], [3]])

    with ThreadPoolExecutor(3) as threads:
        stepping = threads.submit(step_on)
        assert all(result == expected for result in threads.map(lambda _: model.score([5, 6], tokens), range(20)))
        stepping.result()


def test_one_model_may_have_two_adapters() -> None:
    library_model = gpt2_of()
    for _ in range(2):
        model = HuggingFaceModel(library_model)
        assert model.prefix_sharing_disabled_reason == ""
        check_against_full_passes(model, gpt2_of())


@pytest.mark.parametrize(
    "arguments", [{"position_bias": torch.ones(2)}, {"dropout": 0.1}, {"softcap": 20.0}, {"s_aux": torch.ones(2)}],
    ids=["bias", "dropout", "cap", "sinks"],
)  # fmt: skip
def test_unsupported_attention_arguments_are_refused(arguments: dict[str, Any]) -> None:
    rows = torch.ones(1, 2, 1, 4)
    shared_pass = Pass([], 1, torch.device("cpu"))
    with pytest.raises(PrefixSharingUnsupported, match=r"a layer (asks for|has) (position_bias|a mask|a soft cap)"):
        attend(torch.nn.Module(), rows, rows, rows, shared_pass.no_mask, shared_pass=shared_pass, **arguments)


def test_concurrent_generations_do_not_affect_each_other() -> None:
    model, reference = HuggingFaceModel(gpt2_of()), gpt2_of()
    session, _ = model.prefill([1, 2, 3])
    other_session, _ = model.prefill([4])
    _step(model, session, [0, 0], [[5], [6]])
    _step(model, other_session, [0, 0], [[7], [8]])
    result = _step(model, session, [1], [[9]]).log_probs
    torch.testing.assert_close(result, _full_pass(reference, [[1, 2, 3, 6, 9]])[:, -1], atol=2e-4, rtol=0)
    result = _step(model, other_session, [1], [[9]]).log_probs
    torch.testing.assert_close(result, _full_pass(reference, [[4, 8, 9]])[:, -1], atol=2e-4, rtol=0)


@pytest.mark.parametrize("length", [1, 2, 64, 65, 130])
def test_scoring_a_finished_continuation_equals_full_passes_at_every_length(length: int) -> None:
    model, reference = HuggingFaceModel(gpt2_of(n_positions=160)), gpt2_of(n_positions=160)
    tokens = np.random.default_rng(length).integers(1, V, length).tolist()
    model_scores = model.score([3, 4], tokens)
    with torch.inference_mode():
        rows = reference(input_ids=torch.tensor([[3, 4, *tokens]])).logits[0, 1:-1].float().log_softmax(1)
    expected = rows.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(model_scores.log_probs), expected, atol=2e-4, rtol=0)
    torch.testing.assert_close(torch.tensor(model_scores.max_log_probs), rows.amax(1), atol=2e-4, rtol=0)


def test_an_empty_prompt_begins_with_the_models_own_first_token() -> None:
    model = HuggingFaceModel(gpt2_of())
    torch.testing.assert_close(model.prefill([])[1], _full_pass(gpt2_of(), [[0]])[0, -1], atol=2e-4, rtol=0)
    with pytest.raises(PromptEmpty):
        HuggingFaceModel(gpt2_of(bos_token_id=None)).prefill([])


@pytest.mark.parametrize("shape", [(1, 301), (3, 50_257), (17, 7), (48, 4096)])
def test_log_probs_in_place_of_logits_have_the_same_bits(shape: tuple[int, int]) -> None:
    logits = torch.randn(shape) * 9.0
    expected = logits.log_softmax(dim=-1)
    log_probs = shared_prefix._log_probs(logits)
    assert torch.equal(log_probs, expected) and log_probs.data_ptr() == logits.data_ptr()
    strided = torch.randn(shape[::-1]).t()
    assert torch.equal(strided.log_softmax(dim=-1), shared_prefix._log_probs(strided))
