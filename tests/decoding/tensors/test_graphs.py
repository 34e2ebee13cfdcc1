"""Graphs of functions of tensors, and the push-up of Equation 2."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from decoding.options import push_up, pushed
from decoding.search.abs_search import push_up_row
from decoding.tensors import Graphs, to_device
from tests.decoding.tensors.recorded_graphs import NotCapturable, RecordedCapture


def ranks(scores: Tensor, bonus: Tensor) -> tuple[Tensor, ...]:
    """Views, changes in place, sorts and new arrays, as in a step."""
    total = (scores + bonus[:, None]).reshape(-1)
    order = total.argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    total.index_fill_(0, order[-1:], float("-inf"))
    return rank.view_as(scores), total.view_as(scores), torch.where(rank < 2, total, 0.0).amax(0, keepdim=True)


def random_arguments(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 5, generator=generator), torch.randn(rows, generator=generator, dtype=torch.float64)


def assert_equal(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    assert len(actual) == len(expected)
    assert all(torch.equal(*pair) and pair[0].dtype == pair[1].dtype for pair in zip(actual, expected, strict=True))


def test_replays_return_what_the_function_returns() -> None:
    graphs = Graphs(RecordedCapture())
    results = []
    for seed in range(20):
        arguments = random_arguments(3 + seed % 2, seed)
        results.append((graphs.run("ranks", ranks, arguments), ranks(*arguments)))
    for actual, expected in results:  # only now: a later replay must not have changed an earlier result
        assert_equal(actual, expected)
    assert graphs.replays == 20 - 2 * 2


def test_a_graph_is_captured_at_the_third_use() -> None:
    capture = RecordedCapture()
    graphs = Graphs(capture)
    captures = []
    for rows in (1, 1, 2, 2, 1, 1, 2):
        graphs.run("ranks", ranks, random_arguments(rows, rows))
        captures.append(capture.captures)
    assert captures == [0, 0, 0, 0, 1, 1, 2]


def test_graphs_of_several_sizes_share_a_buffer_in_turns() -> None:
    graphs = Graphs(RecordedCapture())
    for seed in range(40):
        for rows in (2, 7, 1, 4):
            arguments = random_arguments(rows, seed)
            assert_equal(graphs.run("ranks", ranks, arguments), ranks(*arguments))


def test_functions_of_different_keys_have_different_graphs() -> None:
    graphs = Graphs(RecordedCapture())
    for seed in range(5):
        arguments = random_arguments(3, seed)
        assert_equal(graphs.run("ranks", ranks, arguments), ranks(*arguments))
        assert_equal(graphs.run("sum", lambda a, b: (a.sum() + b.sum(),), arguments), (sum(map(torch.sum, arguments)),))


def test_the_least_recently_used_graph_is_dropped() -> None:
    capture = RecordedCapture()
    graphs = Graphs(capture, shapes_max=2)
    for rows in (1, 1, 1, 2, 2, 2, 1):
        graphs.run("ranks", ranks, random_arguments(rows, 0))
    assert capture.captures == 2
    for rows in (3, 1):  # 3 displaces 2
        graphs.run("ranks", ranks, random_arguments(rows, 0))
    assert capture.captures == 2
    for _ in range(3):
        graphs.run("ranks", ranks, random_arguments(2, 0))
    assert capture.captures == 3


def test_a_lack_of_memory_leaves_the_function_uncaptured() -> None:
    attempts = []

    def capture(function: Callable[[], tuple[Tensor, ...]]) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
        attempts.append(function)
        raise torch.OutOfMemoryError("CUDA out of memory")

    graphs = Graphs(capture)
    for seed in range(300):
        arguments = random_arguments(3, seed)
        assert_equal(graphs.run("ranks", ranks, arguments), ranks(*arguments))
    assert len(attempts) == 2 and graphs.replays == 0  # the third use, and 256 or more uses later


BAD: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "a number is read": lambda x: (x * float(x[0]),),
    "a branch reads an array": lambda x: (x if x[0] > 0 else -x,),
    "an array is copied to the host": lambda x: (torch.zeros(2) + x.cpu()[0],),
    "a mask chooses elements": lambda x: (x[x > 0].sum(),),
    "a mask names what is set": lambda x: (torch.zeros(9).index_put_((x > 0,), x.sum()) * (x[x > 9].sum() + 1),),
    "positions are counted": lambda x: (x.nonzero().amax(),),
    "memory of the host is copied": lambda x: (x + torch.tensor([1.0] * 9),),
    "an array of the host is copied": lambda x: (x + to_device(np.ones(9), x.device),),
}


@pytest.mark.parametrize("name", BAD)
def test_functions_for_which_the_host_waits_cannot_be_captured(name: str) -> None:
    graphs = Graphs(RecordedCapture())
    with pytest.raises(NotCapturable):
        for _ in range(4):
            graphs.run(name, BAD[name], [torch.arange(9.0)])


def test_shapes_that_depend_on_data_are_found_in_a_replay() -> None:
    graphs = Graphs(RecordedCapture())

    def function(counts: Tensor) -> tuple[Tensor, ...]:
        return (counts.repeat_interleave(counts).sum(),)

    with pytest.raises(NotCapturable, match="depends on data"):
        for number in range(5):
            graphs.run("repeat", function, [torch.full((3,), 1 + number)])


def test_a_replay_does_not_follow_what_changes_in_python() -> None:
    """So comparisons with and without graphs find such a dependence."""
    graphs, budgets, results = Graphs(RecordedCapture()), iter(range(9)), []
    for _ in range(5):
        budget = next(budgets)
        results += graphs.run("stale", lambda x, budget=budget: (x + budget,), [torch.zeros(1)])
    assert [int(result) for result in results] == [0, 1, 2, 2, 2]


def test_alpha_grows_to_one_as_the_budget_runs_out() -> None:
    alphas = [push_up(3, budget, 0.2, 2.0) for budget in range(60, 2, -1)]
    assert alphas == sorted(alphas)
    assert alphas[0] == pytest.approx(0.2, abs=0.003)
    assert alphas[-1] == 1.0


def test_alpha_never_exceeds_one() -> None:
    assert push_up(2**31 - 1, 1, 0.5, 1e6) == 1.0


def test_a_full_push_gives_every_token_the_maximum() -> None:
    assert pushed(-50.0, -0.25, 1.0) == pushed(-1e4, -0.25, 1.0) == -0.25
    assert pushed(-2.0, -1.0, 0.75) == -1.25


@pytest.mark.parametrize(("alpha_min", "gamma"), [(0.0, 1.0), (0.25, 3.7), (0.5, 0.31), (1.0, 2.0)])
def test_a_row_equals_the_function_bit_for_bit(alpha_min: float, gamma: float) -> None:
    for budget in range(1, 41):
        row = push_up_row(budget, 11, alpha_min, gamma)
        expected = [push_up(distance, budget, alpha_min, gamma) for distance in range(12)]
        assert [row[min(distance, len(row) - 1)] for distance in range(12)] == expected
