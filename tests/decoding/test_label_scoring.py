"""Labels that scorers write, compared with all sequences. Scorers are read from files, too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from compiler.errors import BudgetTooSmall
from compiler.lifting import UNREACHABLE, TokenAutomaton
from decoding.errors import Cancelled, ModelOutputInvalid, ModelUnavailable, PromptTooLong
from decoding.label_scoring import LabelScorer, ScorerModel, search_labels
from decoding.options import SearchOptions
from decoding.scorer_models import LabelIds, open_scorer
from tests.decoding.random_automata import all_texts
from tests.decoding.test_label_decoding import random_labels
from tests.label_scorers import BEGIN, END, LABELS, SPECIAL, GruScorer, write_llama, write_onnx
from tests.servers.cluster import FULL

IDS = LabelIds(tuple(range(len(SPECIAL), len(SPECIAL) + len(LABELS))), BEGIN, END)
WIDE = 4**5  # beams that hold every sequence of the tests
Labels = tuple[int, ...]


def state_after(automaton: TokenAutomaton, labels: Labels) -> int:
    state = automaton.start
    for label in labels:
        state = automaton.advance(state, label)
    return state


def log_prob_of(scorer: LabelScorer, prefix: Labels, labels: Labels, end: int) -> float:
    """The log-prob of labels and their end, one by one."""
    written = (*prefix, *labels, end)
    places = range(len(prefix), len(written))
    return sum(float(scorer([list(written[:place])])[0][written[place]]) for place in places)


def accepted(automaton: TokenAutomaton, prefix: Labels, longest: int) -> Iterator[Labels]:
    """Every continuation of at most `longest` labels that the automaton accepts."""
    for length in range(longest + 1):
        for labels in itertools.product(range(automaton.vocabulary_size - 1), repeat=length):
            if automaton.distance[state_after(automaton, (*prefix, *labels))] == 1:  # the end is left
                yield labels


def cases(count: int) -> Iterator[tuple[TokenAutomaton, GruScorer, Labels, int]]:
    for seed in range(count):
        random = np.random.default_rng(seed)
        automaton = random_labels(random)
        labels = automaton.vocabulary_size - 1
        prefix = tuple(random.integers(0, labels, int(random.integers(0, 3))).tolist())
        if automaton.distance[state_after(automaton, prefix)] < UNREACHABLE:
            yield automaton, GruScorer(labels + 2, seed), prefix, int(random.integers(1, 5))


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_wide_beams_find_the_best_of_all_sequences(power: float) -> None:
    found = refused = 0
    for automaton, scorer, prefix, budget in cases(60 if FULL else 30):
        end = automaton.vocabulary_size - 1
        values = {
            labels: log_prob_of(scorer, prefix, labels, end) / (len(labels) + 1) ** power
            for labels in accepted(automaton, prefix, budget - 1)
        }
        model, options = ScorerModel(scorer, end), SearchOptions(budget, beams=WIDE, length_penalty=power)
        if not values:
            refused += 1
            with pytest.raises(BudgetTooSmall):
                search_labels(model, automaton, options, prefix=prefix)
            continue
        found += 1
        path = search_labels(model, automaton, options, prefix=prefix)
        assert path.labels == max(values, key=values.__getitem__)
        value = path.log_prob / (len(path.labels) + 1) ** power
        assert value == pytest.approx(values[path.labels], abs=1e-3)
        assert sum(path.log_probs) == pytest.approx(path.log_prob, abs=1e-3)
    assert found > 12 and refused > 1


@pytest.mark.parametrize("beams", [1, 2])
def test_narrow_beams_always_satisfy_within_the_budget(beams: int) -> None:
    for automaton, scorer, prefix, budget in cases(60 if FULL else 30):
        if automaton.distance[state_after(automaton, prefix)] > budget:
            continue
        end = automaton.vocabulary_size - 1
        path = search_labels(ScorerModel(scorer, end), automaton, SearchOptions(budget, beams=beams), prefix=prefix)
        assert len(path.labels) + 1 <= budget
        assert automaton.distance[state_after(automaton, (*prefix, *path.labels))] == 1


def test_a_transformer_from_a_folder_scores_as_itself(tmp_path: Path) -> None:
    model = write_llama(tmp_path)
    scorer = open_scorer(tmp_path, IDS, device="cpu")
    prefixes = [[], [2, 0, 1], [3], [1, 1, 1], [0]]
    columns = [*IDS.labels, IDS.end]
    for prefix, row in zip(prefixes, scorer(prefixes), strict=True):
        ids = torch.tensor([[BEGIN, *(IDS.labels[label] for label in prefix)]])
        with torch.no_grad():
            expected = model(ids).logits[0, -1, columns].double().log_softmax(dim=0)
        assert row == pytest.approx(expected.numpy(), abs=1e-5)


def test_the_best_sequence_of_a_transformer_is_found(tmp_path: Path) -> None:
    write_llama(tmp_path)
    scorer, end = open_scorer(tmp_path, IDS, device="cpu"), len(LABELS)
    automaton = all_texts(end + 1)
    values = {labels: log_prob_of(scorer, (2,), labels, end) for labels in accepted(automaton, (2,), 3)}
    options = SearchOptions(4, beams=WIDE, length_penalty=0.0)
    path = search_labels(ScorerModel(scorer, end, context_length=16), automaton, options, prefix=(2,))
    assert len(values) == 1 + 4 + 16 + 64 and path.labels == max(values, key=values.__getitem__)
    with pytest.raises(PromptTooLong):
        search_labels(ScorerModel(scorer, end, context_length=4), automaton, options, prefix=(2,))


@pytest.mark.parametrize("further", [(), ("attention_mask", "position_ids")])
def test_an_onnx_model_scores_as_its_network(tmp_path: Path, further: tuple[str, ...]) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    network = GruScorer(len(SPECIAL) + len(LABELS))
    write_onnx(tmp_path, network, *further)
    scorer = open_scorer(tmp_path, IDS)
    prefixes = [[], [2, 0, 1], [3], [1, 1, 1]]
    columns = [*IDS.labels, IDS.end]
    for prefix, row in zip(prefixes, scorer(prefixes), strict=True):
        logits = network.logits([[BEGIN, *(IDS.labels[label] for label in prefix)]])[0, columns]
        assert row == pytest.approx(logits.double().log_softmax(dim=0).numpy(), abs=1e-5)


def test_an_onnx_model_with_a_cache_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    write_onnx(tmp_path, GruScorer(len(SPECIAL) + len(LABELS)), "past_key_values.0.key")
    with pytest.raises(ModelUnavailable, match="export it without a cache"):
        open_scorer(tmp_path, IDS)
    (tmp_path / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(ModelUnavailable, match="cannot load"):
        open_scorer(tmp_path, IDS)


def test_folders_without_safe_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="there is no folder"):
        open_scorer(tmp_path / "absent", IDS)
    model = write_llama(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable, match="no causal language model"):
        open_scorer(tmp_path, IDS)


def test_a_tokenizer_wider_than_its_model_is_refused(tmp_path: Path) -> None:
    write_llama(tmp_path)
    with pytest.raises(ModelUnavailable, match="8 outputs"):
        open_scorer(tmp_path, LabelIds((4, 8), BEGIN, END))


@pytest.mark.parametrize("output", [np.zeros((1, 2)), np.full((1, 3), np.nan), np.full((1, 3), 0.5)], ids=str)
def test_a_faulty_scorer_is_refused(output: np.ndarray) -> None:
    model = ScorerModel(lambda prefixes: output, labels=2)
    with pytest.raises(ModelOutputInvalid, match="the scorer"):
        search_labels(model, all_texts(3), SearchOptions(3))


def test_a_cancelled_search_stops() -> None:
    scorer = GruScorer(4)
    with pytest.raises(Cancelled):
        search_labels(ScorerModel(scorer, 2), all_texts(3), SearchOptions(3), cancelled=lambda: True)
    assert scorer.calls == 1
