"""Estimates an HMM of texts, the look-ahead of Ctrl-G and GeLaTo. The texts are those of a language model.

    python -m benchmarks.systems.hmm_model FOLDER PROMPT [--states 256 1024] [--texts 16384]

It is estimated by expectation maximisation (Baum-Welch) on texts that are sampled from the language model after the
prompt, and stored under .cache/systems/hmm by the name of the model's folder and the number of states. Time, memory and
likelihoods go to results/hmm.json; writes RESULTS.md.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import write_report
from benchmarks.runs import RESULTS_DIRECTORY, Row, RowStore
from benchmarks.systems.catalogue import ENVIRONMENTS
from benchmarks.systems.transformers_systems import load_model

RESULT = RESULTS_DIRECTORY / "hmm.json"
LENGTH = 32
_BATCH = 1024
_POINTS = 32  # for each centre, of which k-means computes it
_HELD_OUT = 16  # every sixteenth text serves the likelihood alone
_SMOOTHING = 1e-6  # of events that do not occur in the sample
_KIB = 1024  # Linux reports ru_maxrss in KiB


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


def model_path(folder: str, states: int) -> Path:
    """Where the HMM of a language model is stored."""
    return ENVIRONMENTS / "hmm" / f"{Path(folder).resolve().name}-{states}.npz"


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


def batches_by_length(texts: Tensor, eos: int) -> list[Tensor]:
    """Batches of texts of one length: int64 [texts, length].

    The padding after a text's end is cut.
    """
    ended = (texts == eos).cumsum(1)
    lengths = torch.minimum((ended == 0).sum(1) + 1, torch.tensor(texts.shape[1]))
    groups = [texts[lengths == length, :length] for length in range(1, texts.shape[1] + 1)]
    return [batch for group in groups if len(group) for batch in group.split(_BATCH)]


@torch.inference_mode()
def hidden_layers(model: Any, ids: Tensor, batches: Iterable[Tensor]) -> list[Tensor]:
    """The model's last layer before each token: [texts, length, width]."""
    layers = []
    for batch in batches:
        sequences = torch.cat([ids.repeat(len(batch), 1), batch], 1)
        layers.append(model(sequences, output_hidden_states=True).hidden_states[-1][:, ids.shape[1] - 1 : -1])
    return layers


def cluster_states(layers: Sequence[Tensor], states: int) -> list[Tensor]:
    """A hidden state for each token: int64 [texts, length].

    It is the number of the mean nearest to the layer.
    """
    points = torch.cat([layer.reshape(-1, layer.shape[-1]) for layer in layers])
    centres = k_means(points[torch.randperm(len(points))[: _POINTS * states]], states)
    return [torch.cdist(layer, centres).argmin(-1) for layer in layers]


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


def initial_model(
    batches: Sequence[Tensor], hidden: Sequence[Tensor], *, vocab_size: int, states: int
) -> HiddenMarkovModel:
    """The model of texts whose tokens have these hidden states. It is Ctrl-G's latent variable distillation."""
    one, tokens = torch.tensor(1.0), torch.cat([batch.flatten() for batch in batches])
    emission, transition = torch.zeros(states, vocab_size), torch.full((states, states), 1.0 / states)
    initial = torch.full((states,), 1.0 / states)
    for batch, state in zip(batches, hidden, strict=True):
        emission.index_put_((state.flatten(), batch.flatten()), one, accumulate=True)
        transition.index_put_((state[:, :-1].flatten(), state[:, 1:].flatten()), one, accumulate=True)
        initial.index_put_((state[:, 0],), one, accumulate=True)
    emission += torch.bincount(tokens, minlength=vocab_size) / len(tokens)
    return _normalise(initial, transition, emission)


def _normalise(initial: Tensor, transition: Tensor, emission: Tensor) -> HiddenMarkovModel:
    smoothed = (counts + _SMOOTHING for counts in (initial, transition, emission))
    return HiddenMarkovModel(*(counts / counts.sum(-1, keepdim=True) for counts in smoothed))


def baum_welch_round(model: HiddenMarkovModel, batches: Sequence[Tensor]) -> tuple[HiddenMarkovModel, float]:
    """One Baum-Welch round over all texts, and their mean log-likelihood.

    The log-likelihood is in nats under the model before the round.
    """
    initial, transition = torch.zeros_like(model.initial), torch.zeros_like(model.transition)
    by_token = model.emission.T.contiguous()
    emission = torch.zeros_like(by_token)
    log_likelihood = 0.0
    for batch in batches:
        emitted = by_token[batch.T]  # [time, texts, H]
        forward: list[Tensor] = []
        scales: list[Tensor] = []
        for time_step in range(batch.shape[1]):
            prior = forward[-1] @ model.transition if forward else model.initial
            joint = prior * emitted[time_step]
            scales.append(joint.sum(1, keepdim=True))
            forward.append(joint / scales[-1])
        backward = torch.ones_like(forward[-1])
        for time_step in reversed(range(batch.shape[1])):
            posterior = forward[time_step] * backward
            emission.index_add_(0, batch[:, time_step], posterior)
            if time_step:
                scaled = emitted[time_step] * backward / scales[time_step]
                transition += forward[time_step - 1].T @ scaled
                backward = scaled @ model.transition.T
            else:
                initial += posterior.sum(0)
        log_likelihood += float(torch.cat(scales, 1).log().sum())
    counts = _normalise(initial, transition * model.transition, emission.T.contiguous())
    return counts, log_likelihood / sum(map(len, batches))


@dataclass(frozen=True, slots=True)
class Estimate:
    """An HMM, its number of rounds, and mean log-likelihoods in nats.

    log_likelihood  of the texts of the estimation, under the model before the last round
    held_out        of other texts, under the model
    """

    model: HiddenMarkovModel
    rounds: int
    log_likelihood: float
    held_out: float


def estimate(
    model: HiddenMarkovModel, batches: Sequence[Tensor], held_out: Sequence[Tensor], *, rounds: int
) -> Estimate:
    """The best estimate by the likelihood of other texts. Prints that of each round.

    A model with many states learns its texts by heart; the rounds end when other texts become less likely.
    """
    best: Estimate | None = None
    for number in range(1, rounds + 1):
        model, log_likelihood = baum_welch_round(model, batches)
        result = Estimate(model, number, log_likelihood, baum_welch_round(model, held_out)[1])
        print(f"round {number}: {log_likelihood:.3f} nats a text, of other texts {result.held_out:.3f}", flush=True)
        if best is not None and result.held_out <= best.held_out:
            break
        best = result
    assert best is not None, "there is at least one round"
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("prompt")
    parser.add_argument("--states", type=int, nargs="+", default=[256])
    parser.add_argument("--texts", type=int, default=16_384)
    parser.add_argument("--rounds", type=int, default=20, help="at most")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("medium")  # lets oneDNN multiply, which takes half of MKL's time on an AMD EPYC
    language_model, tokenizer = load_model(args.folder)
    ids, eos = torch.tensor([tokenizer(args.prompt).input_ids]), int(language_model.config.eos_token_id)
    start = time.process_time()
    sample = sample_texts(language_model, ids, args.texts)
    sampling_s = time.process_time() - start
    held_out, training = sample[::_HELD_OUT], sample[torch.arange(len(sample)) % _HELD_OUT != 0]
    batches, others = batches_by_length(training, eos), batches_by_length(held_out, eos)
    layers = hidden_layers(language_model, ids, batches)
    rows = RowStore(RESULT, lambda row: (row["model"], row["states"]))
    for states in args.states:
        start = time.process_time()
        hidden = cluster_states(layers, states)
        clustered = initial_model(batches, hidden, vocab_size=language_model.config.vocab_size, states=states)
        result = estimate(clustered, batches, others, rounds=args.rounds)
        seconds = time.process_time() - start
        result.model.save(model_path(args.folder, states))
        arrays = (result.model.initial, result.model.transition, result.model.emission)
        key: Row = {"model": Path(args.folder).resolve().name, "states": states}
        rows.store(key | {
            "texts": len(training), "tokens": sum(batch.numel() for batch in batches), "rounds": result.rounds,
            "sampling_s": sampling_s, "seconds": seconds, "log_likelihood": result.log_likelihood,
            "held_out": result.held_out, "bytes": sum(array.nbytes for array in arrays),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB,
        }, key, length=LENGTH, threads=torch.get_num_threads(), clock="process")  # fmt: skip
    write_report()


if __name__ == "__main__":
    main()
