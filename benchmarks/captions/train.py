"""Makes the built-in model, a small Llama trained on CommonGen's captions. It has its own byte-level BPE.

    python -m benchmarks.captions.train --data train.jsonl.gz --out DIRECTORY

Half of the examples read "sentence: TEXT", half "concepts: a, b, c\\nsentence: TEXT" with the concepts shuffled, so
that the model serves with and without the concepts in its prompt. Training uses no constraints.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

EOS_TOKEN, EOS_ID = "<eos>", 0  # the first special token: also the beginning of a text, and the padding
VOCABULARY_SIZE = 4096
CONTEXT_TOKENS = 256  # rotary positions: the captions train the first 64 or so
IGNORED_LABEL = -100  # torch's cross-entropy leaves these positions out
BATCHES_A_BLOCK = 50  # a block is sorted by length, so that a batch pads little


@dataclass(frozen=True)
class Recipe:
    """How to train. `steps` caps the optimiser steps that `epochs` would take; None: no cap."""

    epochs: int = 3
    steps: int | None = None
    batch: int = 64
    peak_rate: float = 1e-3
    warm_up_steps: int = 200
    weight_decay: float = 0.1
    gradient_norm_max: float = 1.0
    seed: int = 0

    def steps_for(self, examples: int) -> int:
        steps = self.epochs * examples // self.batch
        return steps if self.steps is None else min(steps, self.steps)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate: a linear rise, then half a cosine to zero."""
        return self.peak_rate * min(1.0, step / self.warm_up_steps) * (0.5 + 0.5 * math.cos(math.pi * step / steps))


@dataclass(frozen=True, slots=True)
class Caption:
    concepts: tuple[str, ...]
    text: str


def read_captions(path: Path) -> list[Caption]:
    """Every reference of a gzip file of JSON lines. A line is `{"concepts": [...], "references": [...]}`."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [Caption(tuple(row["concepts"]), text) for row in rows for text in row["references"]]


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A byte-level BPE of 4,096 ids; it writes `<eos>` before every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE, special_tokens=[EOS_TOKEN], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    special = [(EOS_TOKEN, EOS_ID)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{EOS_TOKEN} $A", special_tokens=special)
    return tokenizer


def build_model() -> LlamaForCausalLM:
    """The untrained model, 5.9 million parameters, float32."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=8,
            max_position_embeddings=CONTEXT_TOKENS,
            tie_word_embeddings=True,
            bos_token_id=EOS_ID,
            eos_token_id=EOS_ID,
            pad_token_id=EOS_ID,
        )
    )


def encode(tokenizer: Tokenizer, caption: Caption, rng: random.Random) -> list[int]:
    """The ids of one example, `<eos>` at both ends. Its prompt names the concepts with probability one half."""
    head = ""
    if rng.random() < 0.5:
        shuffled = rng.sample(caption.concepts, len(caption.concepts))
        head = f"concepts: {', '.join(shuffled)}\n"
    ids: list[int] = tokenizer.encode(f"{head}sentence: {caption.text}").ids
    return [*ids, EOS_ID]


def batches(examples: list[list[int]], size: int, rng: random.Random) -> Iterator[list[list[int]]]:
    """Batches of at most `size` examples of like length, in random order."""
    block_size = size * BATCHES_A_BLOCK
    for start in range(0, len(examples), block_size):
        block = sorted(examples[start : start + block_size], key=len)
        groups = [block[at : at + size] for at in range(0, len(block), size)]
        rng.shuffle(groups)
        yield from groups


def pad(batch: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded ids and labels of a batch, both int64 [B, T].

    Ids are padded with `<eos>`; labels exclude the first token.
    """
    width = max(map(len, batch))
    ids = torch.full((len(batch), width), EOS_ID)
    labels = torch.full((len(batch), width), IGNORED_LABEL)
    for row, example in enumerate(batch):
        ids[row, : len(example)] = torch.tensor(example)
        labels[row, 1 : len(example)] = torch.tensor(example[1:])
    return ids, labels


def epochs_of_batches(
    captions: list[Caption], tokenizer: Tokenizer, recipe: Recipe
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless batches; each epoch shuffles the captions and draws new prompts."""
    rng = random.Random(recipe.seed)
    order = list(captions)
    while True:
        rng.shuffle(order)
        examples = [encode(tokenizer, caption, rng) for caption in order]
        yield from map(pad, batches(examples, recipe.batch, rng))


def train(captions: list[Caption], tokenizer: Tokenizer, recipe: Recipe) -> tuple[LlamaForCausalLM, list[float]]:
    """The trained model and each step's loss in nats a token."""
    torch.manual_seed(recipe.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with device:
        model = build_model()
    optimizer = torch.optim.AdamW(
        model.parameters(), recipe.peak_rate, betas=(0.9, 0.95), weight_decay=recipe.weight_decay
    )
    steps, losses, start = recipe.steps_for(len(captions)), [], time.monotonic()
    for step, (ids, labels) in zip(range(steps), epochs_of_batches(captions, tokenizer, recipe), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step, steps)
        loss = model(input_ids=ids.to(device), labels=labels.to(device)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_norm_max)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if (step + 1) % 100 == 0:
            print(f"{step + 1}/{steps} loss {losses[-1]:.3f} {time.monotonic() - start:.0f} s", flush=True)
    return model, losses


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, directory: Path) -> None:
    """Write a Hugging Face model directory, weights as float16."""
    model.half().save_pretrained(directory)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS_TOKEN,
        bos_token=EOS_TOKEN,
        pad_token=EOS_TOKEN,
        model_max_length=CONTEXT_TOKENS,
    ).save_pretrained(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="CommonGen's train.jsonl.gz")
    parser.add_argument("--out", type=Path, required=True, help="where the model directory is written")
    parser.add_argument("--epochs", type=int, default=Recipe.epochs)
    parser.add_argument("--steps", type=int, help="stop after this number of steps (a trial run)")
    parser.add_argument("--batch", type=int, default=Recipe.batch)
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--threads", type=int, help="CPU threads; torch's own choice when left out")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    captions = read_captions(args.data)
    tokenizer = train_tokenizer(caption.text for caption in captions)
    recipe = Recipe(epochs=args.epochs, steps=args.steps, batch=args.batch, seed=args.seed)
    model, losses = train(captions, tokenizer, recipe)
    save(model, tokenizer, args.out)
    print(f"{len(losses)} steps, last loss {losses[-1]:.3f} nats a token; written to {args.out}")


if __name__ == "__main__":
    main()
