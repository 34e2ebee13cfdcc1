"""The adapter against full forward passes of the library's own models."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from decoding import stretch
from decoding.attention import NotShareable, Pass, attend
from decoding.errors import PromptEmpty
from decoding.language_model import Feed, Scores
from decoding.model import HuggingFaceModel

V = 61
GROUPED = {
    "vocab_size": V,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "eos_token_id": 60,
    "bos_token_id": 0,
}
ENDS = {"vocab_size": V, "bos_token_id": 0, "eos_token_id": 60}


def _gpt2(**changes: object) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes = {"n_positions": 48, "n_embd": 24, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**{**sizes, **ENDS, **changes})).eval()


def _made(kind: Callable[[Any], PreTrainedModel], config: object) -> PreTrainedModel:
    torch.manual_seed(1)
    return kind(config).eval()


def _window(length: int | None) -> PreTrainedModel:
    return _made(MistralForCausalLM, MistralConfig(**GROUPED, sliding_window=length))


SHARED: dict[str, Callable[[], PreTrainedModel]] = {
    "gpt2": _gpt2,
    "gpt2, scaled by layer": lambda: _gpt2(scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False),
    "llama, grouped keys": lambda: _made(LlamaForCausalLM, LlamaConfig(**GROUPED)),
    "llama, one key for all": lambda: _made(LlamaForCausalLM, LlamaConfig(**{**GROUPED, "num_key_value_heads": 1})),
    "llama, large": lambda: _made(LlamaForCausalLM, LlamaConfig(**{**GROUPED, "hidden_size": 256})),
    "mistral, no window": lambda: _window(None),
    "qwen3, normed keys": lambda: _made(Qwen3ForCausalLM, Qwen3Config(**GROUPED, head_dim=10)),
    "cohere, scaled logits": lambda: _made(CohereForCausalLM, CohereConfig(**GROUPED)),
    "neox": lambda: _made(
        GPTNeoXForCausalLM,
        GPTNeoXConfig(**ENDS, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32),
    ),
    "opt": lambda: _made(
        OPTForCausalLM,
        OPTConfig(
            **ENDS, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, ffn_dim=32, word_embed_proj_dim=24
        ),
    ),
    "mixtral, experts": lambda: _made(MixtralForCausalLM, MixtralConfig(**GROUPED, num_local_experts=3)),
}
ROPE_BY_LENGTH = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
PLAIN: dict[str, tuple[Callable[[], PreTrainedModel], str]] = {
    "mistral, a window of 5": (lambda: _window(5), "does not see all"),
    "mistral, a long window": (lambda: _window(4096), "does not see all"),
    "gemma3, windows in some layers": (
        lambda: _made(
            Gemma3ForCausalLM,
            Gemma3TextConfig(
                **GROUPED,
                head_dim=8,
                sliding_window=4,
                layer_types=["full_attention", "sliding_attention"],
                pad_token_id=0,
            ),
        ),
        "does not see all",
    ),
    "llama, positions by length": (
        lambda: _made(LlamaForCausalLM, LlamaConfig(**GROUPED, rope_parameters=ROPE_BY_LENGTH)),
        "longest row",
    ),
    "bloom, biases by distance": (
        lambda: _made(BloomForCausalLM, BloomConfig(**ENDS, hidden_size=24, n_layer=2, n_head=2)),
        "cannot be exchanged",
    ),
    "lfm2, convolutions": (
        lambda: _made(Lfm2ForCausalLM, Lfm2Config(**GROUPED, layer_types=["conv", "full_attention"])),
        "more than keys",
    ),
    "gpt2 with eager attention": (lambda: _gpt2(attn_implementation="eager"), "cannot be exchanged"),
}


def _full_pass(model: PreTrainedModel, rows: list[list[int]]) -> torch.Tensor:
    """Log-probs after the last id of each row, each row on its own, without a cache."""
    with torch.inference_mode():
        return torch.stack(
            [model(input_ids=torch.tensor([row]), use_cache=False).logits[0, -1].float().log_softmax(0) for row in rows]
        )


def _step(model: HuggingFaceModel, session: Any, parents: list[int], tokens: list[list[int]]) -> Scores:
    return model.step([Feed(session, torch.tensor(parents), torch.tensor(tokens))])[0]


def _check_against_full_passes(model: HuggingFaceModel, plain: PreTrainedModel, tolerance: float = 2e-4) -> None:
    """Rows that fork, swap, stay, double and vanish, and grow by one token or by several."""
    random = np.random.default_rng(0)
    prompt = random.integers(1, plain.config.vocab_size, 7).tolist()
    session, first = model.prefill(prompt)
    torch.testing.assert_close(first, _full_pass(plain, [prompt])[0], atol=tolerance, rtol=0)
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
        tokens = random.integers(1, plain.config.vocab_size, (len(parents), count)).tolist()
        found = _step(model, session, parents, tokens)
        assert found.log_probs.dtype == found.own.dtype == found.peak.dtype == torch.float32
        assert found.own.shape == found.peak.shape == (len(parents), count - 1)
        rows = [[*rows[parent], *own] for parent, own in zip(parents, tokens, strict=True)]
        torch.testing.assert_close(found.log_probs, _full_pass(plain, rows), atol=tolerance, rtol=0)
        for place in range(count - 1):
            known = _full_pass(plain, [row[: len(row) - count + place + 1] for row in rows])
            following = torch.tensor([own[place + 1] for own in tokens])
            own_expected = known.gather(1, following[:, None])[:, 0]
            torch.testing.assert_close(found.own[:, place], own_expected, atol=tolerance, rtol=0)
            torch.testing.assert_close(found.peak[:, place], known.amax(1), atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", SHARED)
def test_models_read_the_shared_way_give_the_log_probs_of_full_passes(name: str) -> None:
    model = HuggingFaceModel(SHARED[name]())
    assert model.unshared_because == ""
    _check_against_full_passes(model, SHARED[name]())


@pytest.mark.parametrize("name", PLAIN)
def test_other_models_are_read_the_plain_way_and_give_the_log_probs_of_full_passes(name: str) -> None:
    make, reason = PLAIN[name]
    model = HuggingFaceModel(make())
    assert reason in model.unshared_because
    _check_against_full_passes(model, make())


@pytest.mark.parametrize("make", [_gpt2, lambda: _window(5)], ids=["shared", "plain"])
def test_long_stretches_are_read_in_pieces(
    make: Callable[[], PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretch, "PIECE_BYTES_MAX", 2 * 3 * 4 * V)  # two tokens of three rows
    _check_against_full_passes(HuggingFaceModel(make()), make())


@pytest.mark.parametrize("name", ["captions", "stories260k", "tinystories-656k"])
def test_trained_models_give_the_log_probs_of_full_passes(name: str, shared: Path) -> None:
    path = shared / "models" / name
    plain = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True).eval()
    model = HuggingFaceModel.load(str(path))
    assert (model.unshared_because, model.rows_independent) == ("", True)
    _check_against_full_passes(model, plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["gpt2", "llama, grouped keys", "mistral, a window of 5"])
def test_half_precision_gives_log_probs_in_single_precision_near_the_full_ones(name: str, dtype: torch.dtype) -> None:
    make = SHARED[name] if name in SHARED else PLAIN[name][0]
    model = HuggingFaceModel(make().to(dtype))
    assert model.tolerance == 0.5
    assert (model.unshared_because == "") == (name in SHARED)
    _check_against_full_passes(model, make().to(dtype).float(), tolerance=0.05)


def _crowd(model: HuggingFaceModel, seeds: list[int], steps: int) -> list[list[Scores]]:
    """The scores of generations of random shapes that go through the same passes; each one's shape is its seed's."""
    randoms = [np.random.default_rng(seed) for seed in seeds]
    prompts = [random.integers(1, model.vocab_size, random.integers(1, 16)).tolist() for random in randoms]
    opened = [model.prefill(prompt) for prompt in prompts]
    rows = [1] * len(seeds)
    found: list[list[Scores]] = [[] for _ in seeds]
    for _ in range(steps):
        feeds = []
        for number, random in enumerate(randoms):
            kept, count = int(random.integers(1, 9)), int(random.choice([1, 1, 1, 3]))
            parents = torch.from_numpy(random.integers(0, rows[number], kept))
            tokens = torch.from_numpy(random.integers(1, model.vocab_size, (kept, count)))
            feeds.append(Feed(opened[number][0], parents, tokens))
            rows[number] = kept
        for own, scores in zip(found, model.step(feeds), strict=True):
            own.append(scores)
    return found


def _check_neighbours(model: HuggingFaceModel) -> None:
    assert model.rows_independent
    together = _crowd(model, list(range(8)), steps=6)
    for seed in range(8):
        for alone, among in zip(_crowd(model, [seed], steps=6)[0], together[seed], strict=True):
            for field in ("log_probs", "own", "peak"):
                assert torch.equal(getattr(alone, field), getattr(among, field))


@pytest.mark.parametrize("name", ["captions", "stories260k", "tinystories-656k"])
def test_a_generations_log_probs_are_the_same_bits_whatever_shares_its_passes(name: str, shared: Path) -> None:
    _check_neighbours(HuggingFaceModel.load(str(shared / "models" / name)))


@pytest.mark.parametrize("name", ["gpt2", "llama, large", "llama, one key for all", "mistral, a window of 5"])
def test_the_same_bits_for_random_models_too(name: str) -> None:
    make = SHARED[name] if name in SHARED else PLAIN[name][0]
    _check_neighbours(HuggingFaceModel(make()))


def test_models_whose_rows_compete_for_experts_do_not_claim_the_same_bits() -> None:
    assert not HuggingFaceModel(SHARED["mixtral, experts"]()).rows_independent


class _Asked(TorchDispatchMode):
    """Counts how often the host waits for a number from the device."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counted[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["gpt2", "llama, large", "qwen3, normed keys"])
def test_steps_leave_everything_on_the_device_but_a_count_now_and_then(name: str) -> None:
    model = HuggingFaceModel(SHARED[name]())
    session, _ = model.prefill([1, 2])
    with _Asked() as asked:
        for step in range(40):
            parents = torch.arange(4) // 2 if step else torch.zeros(4, dtype=torch.int64)
            model.step([Feed(session, parents, parents[:, None])])
    assert not {"_local_scalar_dense", "equal", "is_nonzero"} & asked.counted.keys()
    assert 1 <= asked.counted["nonzero"] <= 12


def test_answers_are_scored_while_another_thread_steps() -> None:
    model, tokens = HuggingFaceModel(SHARED["llama, large"]()), list(range(1, 30))
    expected = model.score([5, 6], tokens)
    session, _ = model.prefill([1, 2])

    def step_on() -> None:
        for step in range(30):
            _step(model, session, [0, 0, 0] if step == 0 else [2, 0, 1], [[1], [2], [3]])

    with ThreadPoolExecutor(3) as threads:
        stepping = threads.submit(step_on)
        assert all(found == expected for found in threads.map(lambda _: model.score([5, 6], tokens), range(20)))
        stepping.result()


def test_one_model_may_have_two_adapters() -> None:
    plain = _gpt2()
    for _ in range(2):
        model = HuggingFaceModel(plain)
        assert model.unshared_because == ""
        _check_against_full_passes(model, _gpt2())


@pytest.mark.parametrize("more", [{"softcap": 20.0}, {"sliding_window": 4}, {"s_aux": torch.ones(2)}], ids=str)
def test_layers_that_ask_for_more_are_refused(more: dict[str, Any]) -> None:
    rows = torch.ones(1, 2, 1, 4)
    shared_pass = Pass([], 1, torch.device("cpu"))
    with pytest.raises(NotShareable, match=next(iter(more))):
        attend(torch.nn.Module(), rows, rows, rows, shared_pass.no_mask, shared_pass=shared_pass, **more)


def test_two_generations_at_once_do_not_disturb_each_other() -> None:
    model, plain = HuggingFaceModel(_gpt2()), _gpt2()
    one, _ = model.prefill([1, 2, 3])
    other, _ = model.prefill([4])
    _step(model, one, [0, 0], [[5], [6]])
    _step(model, other, [0, 0], [[7], [8]])
    found = _step(model, one, [1], [[9]]).log_probs
    torch.testing.assert_close(found, _full_pass(plain, [[1, 2, 3, 6, 9]]), atol=2e-4, rtol=0)
    found = _step(model, other, [1], [[9]]).log_probs
    torch.testing.assert_close(found, _full_pass(plain, [[4, 8, 9]]), atol=2e-4, rtol=0)


@pytest.mark.parametrize("make", [_gpt2, lambda: _window(5)], ids=["shared", "plain"])
def test_a_session_is_freed_when_it_is_dropped(make: Callable[[], PreTrainedModel]) -> None:
    model = HuggingFaceModel(make())
    session, _ = model.prefill([1, 2, 3])
    scores = _step(model, session, [0, 0, 0, 0], [[1], [2], [3], [4]])
    held = weakref.ref(session)
    del session
    assert held() is None
    assert scores.log_probs.shape == (4, V)


def test_a_generation_holds_no_more_than_was_announced() -> None:
    model = HuggingFaceModel(_gpt2(n_positions=160))
    session, _ = model.prefill(list(range(1, 11)))
    for step in range(50):
        rows = 1 if step == 0 else 6
        _step(model, session, [row % rows for row in range(6)], [[row + 1] for row in range(6)])
        assert session.nbytes + 4 * 6 * V <= model.bytes_for(10, 6, 50)
    assert model.bytes_for(10, 6, 50) < 4 * session.nbytes


@pytest.mark.parametrize("length", [1, 2, 64, 65, 130])
def test_scoring_a_finished_continuation_equals_full_passes_at_every_length(length: int) -> None:
    model, plain = HuggingFaceModel(_gpt2(n_positions=160)), _gpt2(n_positions=160)
    tokens = np.random.default_rng(length).integers(1, V, length).tolist()
    rescored = model.score([3, 4], tokens)
    with torch.inference_mode():
        rows = plain(input_ids=torch.tensor([[3, 4, *tokens]])).logits[0, 1:-1].float().log_softmax(1)
    expected = rows.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(rescored.log_probs), expected, atol=2e-4, rtol=0)
    torch.testing.assert_close(torch.tensor(rescored.peaks), rows.amax(1), atol=2e-4, rtol=0)


def test_an_empty_prompt_begins_with_the_models_own_first_token() -> None:
    model = HuggingFaceModel(_gpt2())
    torch.testing.assert_close(model.prefill([])[1], _full_pass(_gpt2(), [[0]])[0], atol=2e-4, rtol=0)
    with pytest.raises(PromptEmpty):
        HuggingFaceModel(_gpt2(bos_token_id=None)).prefill([])
