"""Estimates an HMM of texts, the look-ahead of Ctrl-G and GeLaTo. The texts are those of a language model.

    python -m benchmarks.systems.hmm_model FOLDER PROMPT [--states 256] [--texts 16384]

It is estimated by expectation maximisation (Baum-Welch) on texts that are sampled from the language model after the
prompt, and stored under .cache/systems/hmm by the name of the model's folder.
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
from benchmarks.systems.transformers_systems import load_model

LENGTH = 32
_BATCH = 1024
_SMOOTHING = 1e-6  # of events that do not occur in the sample


@dataclass(frozen=True, slots=True)
class HiddenMarkovModel:
    """Probabilities in float32; each row sums to 1.

    initial     [H]
    transition  [H, H]  from row to column
    emission    [H, V]
    """

    initial: Tensor
    transition: Tensor
    emission: Tensor

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        initial, transition, emission = (array.numpy() for array in (self.initial, self.transition, self.emission))
        np.savez(path, initial=initial, transition=transition, emission=emission)

    @classmethod
    def load(cls, path: Path) -> HiddenMarkovModel:
        """Raises FileNotFoundError, with the command that makes the file."""
        if not path.exists():
            raise FileNotFoundError(f"no {path.name}: python -m benchmarks.systems.hmm_model FOLDER PROMPT")
        with np.load(path) as arrays:
            return cls(*(torch.from_numpy(arrays[name]) for name in ("initial", "transition", "emission")))


def model_path(folder: str) -> Path:
    """Where the HMM of a language model is stored."""
    return ENVIRONMENTS / "hmm" / f"{Path(folder).resolve().name}.npz"


@torch.inference_mode()
def sample_texts(model: Any, ids: Tensor, texts: int) -> Tensor:
    """Samples after a prompt: int64 [texts, LENGTH]. A text that ends is padded with the end-of-text token."""
    eos = int(model.config.eos_token_id)
    batches = []
    for start in range(0, texts, _BATCH):
        prompts = ids.repeat(min(_BATCH, texts - start), 1)
        sample = model.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0, top_p=1.0, max_new_tokens=LENGTH,
            pad_token_id=eos,
        )[:, ids.shape[1] :]  # fmt: skip
        batches.append(torch.nn.functional.pad(sample, (0, LENGTH - sample.shape[1]), value=eos))
    return torch.cat(batches)


@torch.inference_mode()
def cluster_states(model: Any, ids: Tensor, texts: Tensor, states: int) -> Tensor:
    """A hidden state for each token: int64 [texts, LENGTH].

    It is the mean nearest to the model's last layer before the token.
    """
    centres, nearest = None, []
    for batch in texts.split(_BATCH):
        sequences = torch.cat([ids.repeat(len(batch), 1), batch], 1)
        layer = model(sequences, output_hidden_states=True).hidden_states[-1][:, ids.shape[1] - 1 : -1]
        points = layer.reshape(-1, layer.shape[-1])
        if centres is None:  # the first batch is a sample as good as any other
            centres = k_means(points, states)
        nearest.append(torch.cdist(points, centres).argmin(1).view_as(batch))
    return torch.cat(nearest)


def k_means(points: Tensor, count: int, rounds: int = 12) -> Tensor:
    """The centres of `count` clusters by Lloyd's algorithm: [count, width].

    The initial centres are points drawn at random.
    """
    centres = points[torch.randperm(len(points))[:count]].clone()
    for _ in range(rounds):
        nearest = torch.cdist(points, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        sizes = torch.bincount(nearest, minlength=count)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
    return centres


def initial_model(texts: Tensor, state: Tensor, vocab_size: int, states: int) -> HiddenMarkovModel:
    """The model of texts whose tokens have these hidden states. It is Ctrl-G's latent variable distillation."""
    count = torch.tensor(1.0)
    emission, transition = torch.zeros(states, vocab_size), torch.full((states, states), 1.0 / states)
    emission.index_put_((state.flatten(), texts.flatten()), count, accumulate=True)
    transition.index_put_((state[:, :-1].flatten(), state[:, 1:].flatten()), count, accumulate=True)
    emission += torch.bincount(texts.flatten(), minlength=vocab_size) / texts.numel()
    return _normalise(torch.bincount(state[:, 0], minlength=states) + 1.0 / states, transition, emission)


def _normalise(initial: Tensor, transition: Tensor, emission: Tensor) -> HiddenMarkovModel:
    smoothed = (counts + _SMOOTHING for counts in (initial, transition, emission))
    return HiddenMarkovModel(*(counts / counts.sum(-1, keepdim=True) for counts in smoothed))


def baum_welch_round(model: HiddenMarkovModel, texts: Tensor) -> tuple[HiddenMarkovModel, float]:
    """One Baum-Welch round over all texts, and their mean log-likelihood.

    The log-likelihood is in nats under the model before the round.
    """
    initial, transition = torch.zeros_like(model.initial), torch.zeros_like(model.transition)
    emission = torch.zeros_like(model.emission.T.contiguous())
    log_likelihood = 0.0
    for batch in texts.split(_BATCH):
        emitted = model.emission.T[batch]  # [texts, time, H]
        forward: list[Tensor] = []
        scales: list[Tensor] = []
        for time in range(batch.shape[1]):
            prior = forward[-1] @ model.transition if forward else model.initial
            joint = prior * emitted[:, time]
            scales.append(joint.sum(1, keepdim=True))
            forward.append(joint / scales[-1])
        backward = torch.ones_like(forward[-1])
        for time in reversed(range(batch.shape[1])):
            posterior = forward[time] * backward
            emission.index_add_(0, batch[:, time], posterior)
            if time:
                scaled = emitted[:, time] * backward / scales[time]
                transition += forward[time - 1].T @ scaled
                backward = scaled @ model.transition.T
            else:
                initial += posterior.sum(0)
        log_likelihood += float(torch.cat(scales, 1).log().sum())
    counts = _normalise(initial, transition * model.transition, emission.T.contiguous())
    return counts, log_likelihood / len(texts)


def distill(folder: str, prompt: str, states: int, texts: int, rounds: int) -> HiddenMarkovModel:
    """The HMM of a language model's texts. Prints the log-likelihood of each round."""
    torch.manual_seed(0)
    language_model, tokenizer = load_model(folder)
    ids = torch.tensor([tokenizer(prompt).input_ids])
    sample = sample_texts(language_model, ids, texts)
    state = cluster_states(language_model, ids, sample, states)
    model = initial_model(sample, state, language_model.config.vocab_size, states)
    for number in range(rounds):
        model, log_likelihood = baum_welch_round(model, sample)
        print(f"round {number + 1} of {rounds}: {log_likelihood:.3f} nats a text", flush=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("prompt")
    parser.add_argument("--states", type=int, default=256)
    parser.add_argument("--texts", type=int, default=16_384)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    distill(args.folder, args.prompt, args.states, args.texts, args.rounds).save(model_path(args.folder))


if __name__ == "__main__":
    main()
