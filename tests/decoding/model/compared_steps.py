"""Steps of two models that must give the same numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from decoding.model import HuggingFaceModel, StepInput, TensorParallelModel

NATS = 1e-3  # that the log-probs of a group may be off: split sums round otherwise


def feed(session: Any, parents: list[int], tokens: Tensor) -> StepInput[Any]:
    return StepInput(session, torch.tensor(parents), tokens)


def compare_steps(
    group: TensorParallelModel, single: HuggingFaceModel, seed: int, adapters: Sequence[str] = ("", "")
) -> None:
    """Compare generations side by side, one with each adapter. Their rows fork, swap and end."""
    draw, torch_draw = random.Random(seed), torch.Generator().manual_seed(seed)
    sessions = []
    for adapter in adapters:
        prompt = [draw.randrange(1, single.vocab_size) for _ in range(draw.randrange(1, 9))]
        (shared, shared_first), (alone, first) = (
            model.with_adapter(adapter).prefill(prompt) for model in (group, single)
        )
        torch.testing.assert_close(shared_first, first, atol=NATS, rtol=0)
        sessions.append((shared, alone, [1]))
    for _ in range(6):
        inputs = []
        for shared, alone, rows in sessions:
            parents = [draw.randrange(rows[0]) for _ in range(draw.randrange(1, 5))]
            tokens = torch.randint(1, single.vocab_size, (len(parents), draw.choice((1, 1, 3))), generator=torch_draw)
            rows[0] = len(parents)
            inputs.append((feed(shared, parents, tokens), feed(alone, parents, tokens)))
        scores = group.step([each for each, _ in inputs])
        for one, other in zip(scores, single.step([each for _, each in inputs]), strict=True):
            for name in ("log_probs", "token_log_probs", "max_log_probs"):
                torch.testing.assert_close(getattr(one, name), getattr(other, name), atol=NATS, rtol=0)
