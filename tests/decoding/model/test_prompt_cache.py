"""Prompts that begin like earlier ones. What is found gives the same bits as what is read, within the bytes allowed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decoding.model import HuggingFaceModel, shared_prefix
from decoding.model.prefix_tree import PrefixTree
from decoding.model.prompt_cache import PromptCache, chunk_keys
from tests.decoding.model.test_adapters import _log_probs
from tests.decoding.random_models import SHARED, V, llama_of, stablelm_of

CHUNK, PLENTY = 4, 10**9


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shared_prefix._CHUNK_TOKENS, "cpu", CHUNK)


def _prompts(seed: int) -> list[list[int]]:
    """Prompts of all lengths around the ends of chunks. Many begin alike."""
    random = np.random.default_rng(seed)
    texts = random.integers(1, V - 1, (3, 30))
    return [
        [*texts[number % 3][: int(random.integers(0, 25))].tolist(), *random.integers(1, V - 1, 3).tolist()]
        for number in range(8)
    ] + [texts[0][:length].tolist() for length in range(1, 14)]


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.sample(2)
def test_found_chunks_give_the_same_bits(name: str) -> None:
    cached, plain = HuggingFaceModel(SHARED[name]()), HuggingFaceModel(SHARED[name]())
    found: list[bool] = []
    cached.keep_prompts(PLENTY, found.append)
    for prompt in _prompts(len(name)):
        torch.testing.assert_close(_log_probs(cached, prompt), _log_probs(plain, prompt), atol=0, rtol=0)
    assert 0.2 < np.mean(found) < 0.9


def test_a_repeated_prompt_is_not_read_again() -> None:
    model = HuggingFaceModel(llama_of())
    found: list[bool] = []
    model.keep_prompts(PLENTY, found.append)
    prompt = list(range(1, 2 * CHUNK + 3))
    expected = _log_probs(model, prompt)
    torch.testing.assert_close(_log_probs(model, prompt), expected, atol=0, rtol=0)
    assert found == [False] * 3 + [True] * 3


@pytest.mark.parametrize("chunks", [0, 1, 3, 8])
@pytest.mark.sample(2)
def test_a_full_cache_gives_the_same_bits_within_its_bytes(chunks: int) -> None:
    cached, plain = HuggingFaceModel(llama_of()), HuggingFaceModel(llama_of())
    tree, log_probs = plain.prefill(list(range(1, CHUNK + 1)))
    bytes_max = chunks * (tree.prompt_bytes + log_probs.nbytes)
    cache = cached.keep_prompts(bytes_max)
    assert cache is not None
    for prompt in _prompts(chunks):
        torch.testing.assert_close(_log_probs(cached, prompt), _log_probs(plain, prompt), atol=0, rtol=0)
        assert cache.nbytes == sum(chunk.nbytes for chunk in cache._chunks.values()) <= bytes_max
    assert chunks <= len(cache._chunks) <= 4 * chunks


def test_interleaved_prompts_share_chunks_as_soon_as_they_are_read() -> None:
    model = HuggingFaceModel(llama_of())
    found: list[bool] = []
    model.keep_prompts(PLENTY, found.append)
    prompt = list(range(1, 4 * CHUNK + 2))
    first, second = model.prefill_chunks(prompt), model.prefill_chunks(prompt)
    steps = [next(run) for _ in range(3) for run in (first, second)]
    results = [result[1] for result in (*steps, *first, *second) if result is not None]
    assert found.count(False) == 5 and found.count(True) == 5
    assert len(results) == 2 and torch.equal(*results)


def test_the_beginning_of_a_prompt_is_evicted_last() -> None:
    log_probs = torch.zeros(2)
    cache = PromptCache(4 * (CHUNK * 2 * 4 + 8))  # four chunks of one key and one value a token
    tree = PrefixTree(torch.device("cpu"))
    tree.begin(8 * CHUNK)
    tree.store_prompt(0, 0, torch.zeros(8 * CHUNK, 1, 1), torch.zeros(8 * CHUNK, 1, 1))

    def keep(path: list[bytes], number: int) -> None:
        begin = number * CHUNK
        cache.keep(tree, path[: number + 1], begin=begin, end=begin + CHUNK, log_probs=log_probs)

    old, new = (chunk_keys([text] * 8 * CHUNK, CHUNK) for text in (1, 2))
    for number in range(3):
        keep(old, number)
    cache.touch(old)
    for number in range(8):
        keep(new, number)
        if number == 1:
            assert [key in cache._chunks for key in old] == [True, True] + 6 * [False]
    assert set(cache._chunks) == set(new[:4])


def test_keys_of_chunks_depend_on_all_tokens_before() -> None:
    prompts = [[1] * 9, [1, 1, 1, 2, *[1] * 5], [2, *[1] * 8]]
    keys = [chunk_keys(prompt, CHUNK) for prompt in prompts]
    assert [len(path) for path in keys] == [3, 3, 3]
    assert len({key for path in keys for key in path}) == 9
    assert chunk_keys([1] * 8, CHUNK) == keys[0][:2] != chunk_keys([1] * 7, CHUNK)


def test_models_without_prefix_sharing_keep_no_prompts() -> None:
    model = HuggingFaceModel(stablelm_of())
    assert model.keep_prompts(PLENTY) is None
    (result,) = model.prefill_chunks(list(range(1, 10)))
    assert result is not None and torch.equal(result[1], model.prefill(list(range(1, 10)))[1])
