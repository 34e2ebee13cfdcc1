"""The training script makes models of the built-in kind. The built-in model is one of them."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.captions.train import (
    EOS_ID,
    IGNORED_LABEL,
    Caption,
    Recipe,
    batches,
    build_model,
    encode,
    pad,
    read_captions,
    save,
    train,
    train_tokenizer,
)

SUBJECTS, VERBS, PLACES = ("dog", "girl", "man", "cat"), ("runs", "sits", "plays", "waits"), ("park", "beach", "house")
CAPTIONS = [
    Caption((subject, verb, place), f"A {subject} {verb} in the {place}.")
    for subject in SUBJECTS for verb in VERBS for place in PLACES
]


@pytest.mark.long
def test_a_few_steps_make_a_directory_that_transformers_loads(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(caption.text for caption in CAPTIONS)
    recipe = Recipe(steps=12, epochs=100, batch=8, warm_up_steps=2)
    model, losses = train(CAPTIONS, tokenizer, recipe)
    save(model, tokenizer, tmp_path)
    assert len(losses) == 12
    assert losses[-1] < losses[0] - 1.0
    loaded_model = AutoModelForCausalLM.from_pretrained(tmp_path, local_files_only=True)
    loaded_tokenizer = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    text = CAPTIONS[0].text
    assert loaded_tokenizer(text).input_ids[0] == EOS_ID
    assert loaded_tokenizer.decode(loaded_tokenizer(text).input_ids, skip_special_tokens=True) == text
    for name, weights in model.state_dict().items():
        assert torch.equal(weights, loaded_model.state_dict()[name]), name


def test_training_twice_with_one_seed_gives_the_same_losses() -> None:
    tokenizer = train_tokenizer(caption.text for caption in CAPTIONS)
    recipe = Recipe(steps=3, epochs=100, batch=8, seed=5)
    assert train(CAPTIONS, tokenizer, recipe)[1] == train(CAPTIONS, tokenizer, recipe)[1]


def test_batches_cover_examples_once_and_labels_skip_padding() -> None:
    examples = [[EOS_ID, *range(1, length), EOS_ID] for length in range(1, 41)]
    batched = [example for batch in batches(examples, 7, random.Random(1)) for example in batch]
    assert sorted(batched) == sorted(examples)
    ids, labels = pad([[0, 5, 0], [0, 5, 6, 7, 0]])
    assert ids.tolist() == [[0, 5, 0, 0, 0], [0, 5, 6, 7, 0]]
    skip = IGNORED_LABEL
    assert labels.tolist() == [[skip, 5, 0, skip, skip], [skip, 5, 6, 7, 0]]


def test_an_example_names_all_concepts_or_none() -> None:
    tokenizer = train_tokenizer(caption.text for caption in CAPTIONS)
    rng, heads = random.Random(2), set()
    for _ in range(30):
        text = tokenizer.decode(encode(tokenizer, CAPTIONS[0], rng))
        head, _, sentence = text.partition("sentence: ")
        assert sentence == CAPTIONS[0].text
        heads.add(head)
        assert head == "" or sorted(head.removeprefix("concepts: ").strip().split(", ")) == ["dog", "park", "runs"]
    assert "" in heads and len(heads) > 2


def test_captions_are_read_one_for_each_reference(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl.gz"
    row = {"concepts": ["dog", "run"], "references": ["A dog runs.", "The dog ran."]}
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")
    assert read_captions(path) == [Caption(("dog", "run"), "A dog runs."), Caption(("dog", "run"), "The dog ran.")]


def test_the_learning_rate_rises_and_then_falls_to_nothing() -> None:
    recipe = Recipe()
    rates = [recipe.rate(step, 1000) for step in range(1001)]
    assert rates[0] == 0 and rates[-1] == pytest.approx(0, abs=1e-9)
    assert max(rates) == rates[recipe.warm_up_steps]


def test_the_built_in_model_matches_the_training_scripts_shape(captions_dir: Path) -> None:
    built_in = AutoModelForCausalLM.from_pretrained(captions_dir, local_files_only=True)
    new_model = build_model()
    ours, theirs = new_model.config.to_dict(), built_in.config.to_dict()
    for field in ("dtype", "_name_or_path", "transformers_version", "architectures"):
        ours.pop(field, None), theirs.pop(field, None)
    assert ours == theirs
    shapes = {name: weights.shape for name, weights in built_in.state_dict().items()}
    assert shapes == {name: weights.shape for name, weights in new_model.state_dict().items()}


def test_the_built_in_model_has_learnt_captions(captions_dir: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(captions_dir, local_files_only=True, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(captions_dir, local_files_only=True)
    texts = ("A man is riding a wave on a surfboard.", "A dog runs through the park with a ball in its mouth.")
    for text in texts:
        ids = torch.tensor([[*tokenizer(f"sentence: {text}").input_ids, EOS_ID]])
        with torch.no_grad():
            loss = model(input_ids=ids, labels=ids).loss.item()
        assert loss < 3.5, text  # nats a token; an untrained model gives log(4096) = 8.3


@pytest.mark.long
def test_the_script_trains_the_built_in_tokenizer(shared: Path, captions_dir: Path) -> None:
    captions = read_captions(shared / "data" / "commongen" / "train.jsonl.gz")
    assert len(captions) == 67_389
    trained = json.loads(train_tokenizer(caption.text for caption in captions).to_str())
    built_in = json.loads((captions_dir / "tokenizer.json").read_text(encoding="utf-8"))
    assert trained["model"]["vocab"] == built_in["model"]["vocab"]
    assert trained["model"]["merges"] == built_in["model"]["merges"]
