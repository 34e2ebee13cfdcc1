"""Sampling under a constraint. Rows are independent, and each is drawn token by token from the masked model.

The masked model is the model's own distribution (at a temperature) restricted to the tokens after which the text can
still be finished in time, d(q') <= T - t, and renormalised; then its most probable tokens by `top_k`, `min_p` and
`top_p`, in this order. Biases and penalties change log-probs before the mask.

Probabilities are weights in whole numbers, so that a sum is the same in whatever order a device adds it up: the tokens
of a request depend on its seed alone, not on what shares the machine with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from decoding.errors import ModelOutputInvalid, SearchExhausted
from decoding.generation import BeamRow, BeamStep, GenerationSize, Hypothesis, Snapshot
from decoding.model import Scores
from decoding.options import require, require_budget, require_penalties
from decoding.penalties import Penalties, most_probable
from decoding.prepared_constraint import PreparedConstraint, Start
from decoding.tensors import LOG_PROB_FLOOR, TokenStates, arange, rows_at_a_time, scratch_bytes, to_device

TEMPERATURE_MAX = 100.0  # above it the floor under log-probs would show
SEED_MAX = 2**63 - 1
_RANKED = 512  # tokens of a row that are put in order to find its nucleus
_NARROW = 8  # where the ids that rows may take are fewer than V / 8, a draw reads these alone
_MASK = 1e30  # nats; far above any difference of log-probs
_EXPONENT_MIN = -60.0  # exp(-60) * _UNIT rounds to 0
_UNIT = 2**42  # weight of the most probable token; 2**20 ids of that weight still add up within int64


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """A sampling. Raises OptionsInvalid where a value is out of its range.

    max_tokens   T, the budget in tokens, EOS among them
    seed         0 to 2**63 - 1, every bit of which counts; the same seed gives the same tokens
    n            how many answers; they are independent, so two may be equal
    temperature  0 always takes the most probable token (the lowest id of equals); 1 is the model's own distribution
    top_p        the nucleus: the fewest tokens whose probabilities, after masking, add up to this much; above 0
    top_k        at most this many tokens, after masking; 0 or -1: all
    min_p        only tokens at least this probable, as a share of the best allowed one
    frequency_penalty, presence_penalty, repetition_penalty, logit_bias
                 see `Penalties`
    """

    max_tokens: int
    _: KW_ONLY
    seed: int
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_budget(self.max_tokens)
        require(0 <= self.seed <= SEED_MAX, "seed", "between 0 and 2**63 - 1")
        require(self.n >= 1, "n", "at least 1")
        require(0.0 <= self.temperature <= TEMPERATURE_MAX, "temperature", f"between 0 and {TEMPERATURE_MAX:g}")
        require(0.0 < self.top_p <= 1.0, "top_p", "above 0 and at most 1")
        require(self.top_k >= -1, "top_k", "at least -1")
        require(0.0 <= self.min_p <= 1.0, "min_p", "between 0 and 1")
        require_penalties(self)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Rows:
    """The n rows after t tokens; never changed, only replaced.

    tokens    int64   [n, t]
    length    int64   [n]     the number of tokens up to the row's EOS
    state     int64   [n]
    distance  int32   [n]     0 where finished
    score     float64 [n]     log-prob under the distribution that the tokens were drawn from
    log_prob  float64 [n]     the model's own sum
    """

    tokens: Tensor
    length: Tensor
    state: Tensor
    distance: Tensor
    score: Tensor
    log_prob: Tensor


class Sampling:
    """One sampling between two forward passes; obeys `Generation`. Answers come in the order of their rows.

    start       the state before the answer; None: the automaton's own
    prompt_ids  the prompt, which counts for `repetition_penalty`

    >>> sampling = Sampling(PreparedConstraint.prepare(automaton, model.device), SamplingOptions(max_tokens=3, seed=1))
    >>> sampling.size.rows, sampling.done
    (1, False)
    """

    def __init__(
        self, constraint: PreparedConstraint, options: SamplingOptions, *, start: Start | None = None,
        prompt_ids: Sequence[int] = (),
    ) -> None:
        self._states, self._options = constraint.begin_states(start, tensors=True), options
        self._token_class: Tensor = self._states.tokens.token_class
        device = self._token_class.device
        self._penalties = Penalties.of_options(options, prompt_ids, len(self._token_class), device)
        scratch = scratch_bytes(options.n, len(self._token_class), device)
        states_bytes = self._states.bytes_max(options.n, options.max_tokens)
        self.size = GenerationSize(options.n, options.max_tokens, scratch, states_bytes)
        # Row i draws its t-th token with the uniform number i * T + t of the seed's stream, so a row's tokens do not
        # depend on the other rows. The numbers are numpy's: torch's generator takes 32 bits of a seed on the CPU.
        numbers = np.random.Generator(np.random.PCG64(options.seed))
        self._uniform = torch.from_numpy(numbers.random((options.n, options.max_tokens))).to(device)
        state = torch.full((options.n,), self._states.start, device=device)
        zero = torch.zeros(options.n, dtype=torch.float64, device=device)
        nothing = torch.empty((options.n, 0), dtype=torch.int64, device=device)
        self._rows = _Rows(
            tokens=nothing, length=zero.long(), state=state, distance=self._states.distances(state), score=zero,
            log_prob=zero,
        )
        self._live = torch.arange(options.n, device=device)  # [R]: the rows that are not finished
        self._parents = self._live  # [R]: their rows in the feed before
        self._last = np.zeros((0, 0), dtype=np.int64)  # of the last step, a column for each row: token, state, ...
        self._token_count = 0

    @property
    def done(self) -> bool:
        """True where all rows are finished."""
        return not len(self._live)

    @property
    def states(self) -> TokenStates:
        """The automaton's states for this generation."""
        return self._states

    @property
    def last_token(self) -> int:
        """The last token of a sampling's only row."""
        return int(self._last[0, 0])

    @property
    def last_state(self) -> int:
        """The state of a sampling's only row."""
        return int(self._last[1, 0])

    @property
    def budget(self) -> int:
        """How many tokens may still be written."""
        return self._options.max_tokens - self._token_count

    def advance(self, scores: Scores) -> list[Snapshot]:
        """One token for each live row. Raises ModelOutputInvalid, SearchExhausted."""
        rows, live = self._rows, self._live
        log_probs = scores.log_probs.expand(len(live), -1)  # [R, V]; all rows begin with the prompt's one row
        budget_after = self._options.max_tokens - self._token_count - 1
        # A draw makes several arrays [rows, V], so it takes a few rows at a time; rows are independent.
        block = rows_at_a_time(log_probs.shape[1], log_probs.device)
        draws = [
            self._draw(block_log_probs, block_rows, budget_after)
            for block_log_probs, block_rows in zip(log_probs.split(block), live.split(block), strict=True)
        ]
        token, score, token_log_prob, *others = (torch.cat(part) for part in zip(*draws, strict=True))  # [R] each
        next_state, finite, possible = others
        state = rows.state.index_copy(0, live, next_state)
        distance = self._states.distances(state)
        # All that the host reads of a step is one transfer: it waits once for the device.
        self._last = torch.stack(
            [column.long() for column in (token, next_state, distance[live], finite, possible)]
        ).cpu().numpy()
        _require_choices(self._last[3].all(), self._last[4].all(), budget_after + 1)
        column = torch.zeros_like(rows.state).index_copy(0, live, token)
        self._rows = _Rows(
            tokens=torch.cat([rows.tokens, column[:, None]], dim=1),
            length=rows.length.index_add(0, live, torch.ones_like(live)), state=state,
            distance=distance, score=rows.score.index_add(0, live, score),
            log_prob=rows.log_prob.index_add(0, live, token_log_prob),
        )
        unfinished = to_device(np.flatnonzero(self._last[2]), live.device)
        # The first feed extends the prompt's single row n times.
        self._parents = unfinished if self._token_count else torch.zeros_like(unfinished)
        self._live = live[unfinished]
        self._token_count += 1
        return [partial(_event, self._rows, budget_after)]

    def _draw(self, log_probs: Tensor, live: Tensor, budget_after: int) -> tuple[Tensor, ...]:
        """The next token of some live rows.

        live       int64   [R]     the rows
        log_probs  float32 [R, V]  the model's, after these rows

        Returns int64 [R] the tokens, float64 [R] their log-probs in the distribution that they were drawn from,
        float64 [R] those of the model, int64 [R] the states after them, and bool [R] each whether the best log-prob was
        finite, and whether any token was allowed. Without these two, the others mean nothing.
        """
        successors = self._states.successors(self._rows.state[live])
        allowed_classes = successors.distance <= budget_after  # [R, C]
        ids = self._allowed_ids(allowed_classes)
        allowed = allowed_classes[:, self._token_class if ids is None else self._token_class[ids]]  # [R, N]; N <= V
        finite = log_probs.amax(dim=1).isfinite()  # NaN anywhere in a row is NaN in its maximum
        uniform = self._uniform[live, self._token_count]
        options, changed = self._options, log_probs
        if self._penalties is not None:
            changed = self._penalties.changed(log_probs, self._rows.tokens[live])
        if ids is not None:
            changed = changed.index_select(1, ids)
        token, score = draw(
            changed, allowed, uniform, options.temperature, top_p=options.top_p, top_k=options.top_k,
            min_p=options.min_p,
        )  # fmt: skip
        token = token if ids is None else ids[token]
        token_log_prob = log_probs.gather(1, token[:, None])[:, 0].double().clamp(min=LOG_PROB_FLOOR)
        states = successors.states(arange(token, len(token)), self._token_class[token])
        return token, score, token_log_prob, states, finite, allowed.any(dim=1)

    def _allowed_ids(self, allowed_classes: Tensor) -> Tensor | None:
        """The ids that some row may take, ascending: int64 [N]. None where they are many.

        allowed_classes  bool [R, C]
        """
        tables = self._states.tokens
        if tables.device.type != "cpu":  # on an accelerator shapes must not depend on data
            return None
        chunks = allowed_classes.any(dim=0)[tables.chunk_class].nonzero()[:, 0]
        if not len(chunks) or _NARROW * len(chunks) * tables.chunk_id.shape[1] > len(self._token_class):
            return None
        # Other ids have weight 0, so leaving them out changes no sum, and in ascending order no choice between equals.
        ids: Tensor = tables.chunk_id[chunks][~tables.spare[chunks]]
        return ids.sort().values

    def feed(self) -> tuple[Tensor, Tensor]:
        """The live rows and the last token of each.

        Rows are int64 [R], as numbered in the feed before; tokens are int64 [R, 1].
        """
        return self._parents, self._rows.tokens[self._live, -1:]

    def answers(self) -> tuple[Hypothesis, ...]:
        """The n answers in the order of their rows. Two may be equal."""
        return tuple(
            Hypothesis(tokens=tokens, score=score, log_prob=log_prob)
            for tokens, score, log_prob in zip(
                _texts(self._rows), self._rows.score.tolist(), self._rows.log_prob.tolist(), strict=True
            )
        )


def _require_choices(finite: bool, possible: bool, budget_before: int) -> None:
    if not finite:
        raise ModelOutputInvalid("the model's log-probs hold NaN, or none of them is finite")
    if not possible:
        raise SearchExhausted(f"a row could not be extended with {budget_before} tokens left")


def _texts(rows: _Rows) -> list[tuple[int, ...]]:
    """The ids of each row, with one EOS where it is finished."""
    return [tuple(ids[:length]) for ids, length in zip(rows.tokens.tolist(), rows.length.tolist(), strict=True)]


def _event(rows: _Rows, budget_after: int) -> BeamStep:
    """The rows as a listener sees them. Rows are never reordered, so each extends the row of its own number."""
    columns = (column.tolist() for column in (rows.state, rows.distance, rows.score, rows.log_prob))
    beam_rows = tuple(
        BeamRow(tokens=tokens, parent=number, state=state, distance=distance, alpha=0.0, score=score, log_prob=log_prob)
        for number, (tokens, state, distance, score, log_prob) in enumerate(zip(_texts(rows), *columns, strict=True))
    )
    return BeamStep(rows.tokens.shape[1], budget_after, beam_rows)


def draw(
    log_probs: Tensor, allowed: Tensor, uniform: Tensor, temperature: float, *, top_p: float, top_k: int = 0,
    min_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Draw one token for each row, with its log-prob.

    These are int64 [R] and float64 [R]; the log-prob is in the distribution of the draw.

    log_probs  float32 or float64 [R, V]  the model's, or changed ones, no NaN
    allowed    bool    [R, V]
    uniform    float64 [R]     in [0, 1), turned into tokens by the inverse of the cumulative distribution

    Where the model gives probability 0 to all allowed tokens, they are equally probable. A row with NaN, or without an
    allowed token, gets any token.
    """
    # On the CPU `masked_fill` takes ten times as long as a sum, and exp(-inf) as exp of a number.
    masked = log_probs.clamp(min=LOG_PROB_FLOOR).add_(allowed.to(log_probs.dtype).sub_(1.0), alpha=_MASK)  # [R, V]
    best, first = masked.max(dim=1, keepdim=True)  # [R, 1]; of equals the lowest id
    if temperature == 0.0:
        return first[:, 0], torch.zeros_like(uniform)
    best = best.double()
    # In place: at 200,000 ids a new array of float64 costs more time than what is computed in it.
    weight = masked.to(torch.float64, copy=True).sub_(best).div_(temperature)  # [R, V]
    weight = weight.clamp_(min=_EXPONENT_MIN).exp_().mul_(_UNIT)
    weight = weight.round_().long()
    if top_k > 0:
        weight = most_probable(weight, top_k)
    if min_p > 0.0:
        weight = weight.where(weight >= min_p * _UNIT, 0)
    if top_p < 1.0:
        weight = nucleus(weight, top_p)
    cumulative = weight.cumsum(dim=1)  # [R, V]
    total = cumulative[:, -1]  # [R]
    target = torch.minimum((uniform * total).long(), total - 1)  # [R]
    token = torch.searchsorted(cumulative, target[:, None], right=True)  # [R, 1]: the first above the target
    token = token.clamp_(max=cumulative.shape[1] - 1)  # NaN makes sums that are not ascending
    gap = (masked.gather(1, token).double() - best) / temperature  # [R, 1], at most 0
    score = gap[:, 0] - (total.double() / _UNIT).log()
    return token[:, 0], score


def nucleus(weight: Tensor, top_p: float) -> Tensor:
    """Remove the weights outside the nucleus of each row.

    Weights are int64 [R, V]; of equal ones the lowest ids come first.

    >>> nucleus(torch.tensor([[5, 1, 3, 1]]), top_p=0.75).tolist()
    [[5, 0, 3, 0]]
    """
    # The nucleus nearly always lies in the first few hundred tokens; a whole row is sorted only where it does not.
    total = weight.sum(dim=1, keepdim=True)
    threshold = torch.minimum((total.double() * top_p).ceil().long(), total)  # [R, 1]; the product may round above it
    ranked = weight.topk(min(_RANKED, weight.shape[1]), dim=1).values
    if not bool((ranked.sum(dim=1, keepdim=True) >= threshold).all()):
        ranked = weight.sort(dim=1, descending=True).values
    rank = (ranked.cumsum(dim=1) >= threshold).byte().argmax(dim=1, keepdim=True)  # [R, 1]: where it is enough
    least = ranked.gather(1, rank).clamp_(min=1)  # [R, 1]: the lowest weight in the nucleus; NaN makes any weights
    above = weight.where(weight > least, 0)
    tie_mask = weight == least
    missing = (threshold - above.sum(dim=1, keepdim=True) + least - 1) // least  # [R, 1]: tied tokens that are kept
    return above + least * (tie_mask & (tie_mask.cumsum(dim=1) <= missing))
