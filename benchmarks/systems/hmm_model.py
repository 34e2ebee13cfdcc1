"""A hidden Markov model of a language model's texts: what Ctrl-G and GeLaTo look ahead with.

    python -m benchmarks.systems.hmm_model FOLDER PROMPT [--states 256] [--texts 16384]

It is estimated by expectation and maximisation (Baum and Welch) on texts that the language model itself writes after
the prompt. Kept under .cache/systems/hmm, by the model's folder.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.systems.catalogue import ENVIRONMENTS
from benchmarks.systems.transformers_based import opened

LENGTH = 32
_BATCH = 1024
_SMOOTHING = 1e-6  # of what was never seen


@dataclass(frozen=True, slots=True)
class HiddenMarkov:
    """first: (H,); moves: (H, H), from row to column; writes: (H, V). Probabilities, float32; each row sums to 1."""

    first: Tensor
    moves: Tensor
    writes: Tensor

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, first=self.first.numpy(), moves=self.moves.numpy(), writes=self.writes.numpy())

    @classmethod
    def load(cls, path: Path) -> HiddenMarkov:
        """Raises FileNotFoundError, with the command that makes the file."""
        if not path.exists():
            raise FileNotFoundError(f"no {path.name}: python -m benchmarks.systems.hmm_model FOLDER PROMPT")
        with np.load(path) as stored:
            return cls(*(torch.from_numpy(stored[name]) for name in ("first", "moves", "writes")))


def path_of(folder: str) -> Path:
    return ENVIRONMENTS / "hmm" / f"{Path(folder).resolve().name}.npz"


@torch.inference_mode()
def sampled(model: Any, ids: Tensor, texts: int) -> Tensor:
    """Texts of the model after a prompt, (texts, LENGTH) int64; one that ends goes on with its end."""
    eos = int(model.config.eos_token_id)
    found = []
    for begin in range(0, texts, _BATCH):
        many = ids.repeat(min(_BATCH, texts - begin), 1)
        written = model.generate(
            many, attention_mask=torch.ones_like(many), do_sample=True, top_k=0, top_p=1.0, max_new_tokens=LENGTH,
            pad_token_id=eos,
        )[:, ids.shape[1] :]  # fmt: skip
        found.append(torch.nn.functional.pad(written, (0, LENGTH - written.shape[1]), value=eos))
    return torch.cat(found)


@torch.inference_mode()
def clustered(model: Any, ids: Tensor, texts: Tensor, states: int) -> Tensor:
    """A state for each place, (texts, LENGTH) int64: which of k means is nearest to what the model holds before it."""
    centres, found = None, []
    for many in texts.split(_BATCH):
        whole = torch.cat([ids.repeat(len(many), 1), many], 1)
        held = model(whole, output_hidden_states=True).hidden_states[-1][:, ids.shape[1] - 1 : -1]
        points = held.reshape(-1, held.shape[-1])
        if centres is None:  # of the first texts: they are as good as any
            centres = k_means(points, states)
        found.append(torch.cdist(points, centres).argmin(1).view_as(many))
    return torch.cat(found)


def k_means(points: Tensor, count: int, rounds: int = 12) -> Tensor:
    """So many centres of points, (count, width), by Lloyd's rounds from points drawn at random."""
    centres = points[torch.randperm(len(points))[:count]].clone()
    for _ in range(rounds):
        nearest = torch.cdist(points, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        sizes = torch.bincount(nearest, minlength=count)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
    return centres


def begun(texts: Tensor, state: Tensor, vocab_size: int, states: int) -> HiddenMarkov:
    """The model in which the places of the texts have these states (Ctrl-G's latent variable distillation)."""
    one = torch.tensor(1.0)
    writes, moves = torch.zeros(states, vocab_size), torch.full((states, states), 1.0 / states)
    writes.index_put_((state.flatten(), texts.flatten()), one, accumulate=True)
    moves.index_put_((state[:, :-1].flatten(), state[:, 1:].flatten()), one, accumulate=True)
    writes += torch.bincount(texts.flatten(), minlength=vocab_size) / texts.numel()
    return _normalised(torch.bincount(state[:, 0], minlength=states) + 1.0 / states, moves, writes)


def _normalised(first: Tensor, moves: Tensor, writes: Tensor) -> HiddenMarkov:
    smooth = (moves + _SMOOTHING, writes + _SMOOTHING)
    return HiddenMarkov(
        (first + _SMOOTHING) / (first + _SMOOTHING).sum(), *(one / one.sum(1, keepdim=True) for one in smooth)
    )


def improved(model: HiddenMarkov, texts: Tensor) -> tuple[HiddenMarkov, float]:
    """One round over all texts; and their mean log-likelihood in nats under the model before it."""
    first, moves, writes = (torch.zeros_like(one) for one in (model.first, model.moves, model.writes.T.contiguous()))
    likelihood = 0.0
    for many in texts.split(_BATCH):
        seen = model.writes.T[many]  # (texts, time, H)
        ahead: list[Tensor] = []
        scales: list[Tensor] = []
        for time in range(many.shape[1]):
            before = ahead[-1] @ model.moves if ahead else model.first
            joint = before * seen[:, time]
            scales.append(joint.sum(1, keepdim=True))
            ahead.append(joint / scales[-1])
        behind = torch.ones_like(ahead[-1])
        for time in reversed(range(many.shape[1])):
            shares = ahead[time] * behind
            writes.index_add_(0, many[:, time], shares)
            if time:
                coming = seen[:, time] * behind / scales[time]
                moves += ahead[time - 1].T @ coming
                behind = coming @ model.moves.T
            else:
                first += shares.sum(0)
        likelihood += float(torch.cat(scales, 1).log().sum())
    return _normalised(first, moves * model.moves, writes.T.contiguous()), likelihood / len(texts)


def distilled(folder: str, prompt: str, states: int, texts: int, rounds: int) -> HiddenMarkov:
    """The model of a language model's texts; tells how likely it finds them, round by round."""
    torch.manual_seed(0)
    language_model, tokenizer = opened(folder)
    ids = torch.tensor([tokenizer(prompt).input_ids])
    found = sampled(language_model, ids, texts)
    model = begun(found, clustered(language_model, ids, found, states), language_model.config.vocab_size, states)
    for number in range(rounds):
        model, likelihood = improved(model, found)
        print(f"round {number + 1} of {rounds}: {likelihood:.3f} nats a text", flush=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("prompt")
    parser.add_argument("--states", type=int, default=256)
    parser.add_argument("--texts", type=int, default=16_384)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    distilled(args.folder, args.prompt, args.states, args.texts, args.rounds).save(path_of(args.folder))


if __name__ == "__main__":
    main()
