"""The push-up of Equation 2."""

from __future__ import annotations

import pytest

from decoding.options import push_up, pushed
from decoding.search.abs_search import push_up_row


@pytest.mark.parametrize(
    ("budget_before", "distance", "alpha"),
    [
        (9, 4, 0.583), (8, 4, 0.625), (7, 3, 0.571), (7, 4, 0.679), (6, 3, 0.625), (5, 3, 0.700), (4, 3, 0.8125),
        (3, 2, 0.75), (3, 3, 1.0), (2, 2, 1.0), (2, 1, 0.625), (1, 1, 1.0),
    ],
)  # fmt: skip
def test_alphas_count_the_budget_before_the_step_as_figure_3(
    budget_before: int, distance: int, alpha: float
) -> None:
    """With T - t, as printed in Equation 2, alpha would differ.

    The first would be .625, and the last would divide by zero.
    """
    assert push_up(distance, budget_before, 0.25, 1.0) == pytest.approx(alpha, abs=5e-4)


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
