"""Two small models of the next activity.

They obey the library's protocol of a language model. Ids are the numbers of activities, the id behind the last one ends
a trace. A model gives the log-probs of the next id after each row; `RowModel` does the rest of the protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from decoding.model import ObserveScores, ScoredSequence, Scores, StepInput

ORDER = 3  # of the n-gram model
_BACK_OFF = 2.0  # occurrences of a context that weigh as much as the shorter context
_UNSEEN = 0.1  # occurrences added to every id
HIDDEN, EMBEDDED = 100, 32
EPOCHS_MAX, PATIENCE, BATCH, RATE = 80, 8, 32, 0.003
_HELD_OUT = 10  # every tenth trace decides when training ends
Trace = tuple[int, ...]


@dataclass(slots=True)
class RowSession:
    """The rows of one generation, as all their ids."""

    rows: list[Trace]


class RowModel(ABC):
    """A `LanguageModel` whose rows a callback scores.

    Ids go in, log-probs of the next id come out.
    """

    device = torch.device("cpu")
    tolerance = 1e-4
    supports_batching = True
    context_length = None

    def __init__(self, activities: int) -> None:
        self.vocab_size, self.eos_ids = activities + 1, (activities,)
        self._known: dict[Trace, Tensor] = {}

    @abstractmethod
    def score_rows(self, rows: Sequence[Trace]) -> Tensor:
        """The log-probs of the next id after each row: float32 [N, V]."""

    def log_probs(self, rows: Sequence[Trace]) -> Tensor:
        """The same. What was computed once is kept: the systems of the benchmark ask for the same beginnings."""
        unknown = list(dict.fromkeys(row for row in rows if row not in self._known))
        if unknown:
            self._known |= dict(zip(unknown, self.score_rows(unknown), strict=True))
        return torch.stack([self._known[row] for row in rows])

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[RowSession, Tensor]:
        row = tuple(prompt_ids)
        return RowSession([row]), self.log_probs([row])[0]

    def step(self, feeds: Sequence[StepInput[RowSession]]) -> list[Scores]:
        return [self._extend(feed) for feed in feeds]

    def _extend(self, feed: StepInput[RowSession]) -> Scores:
        fed = feed.tokens.tolist()
        rows = [feed.session.rows[parent] for parent in feed.parents.tolist()]
        inner = torch.empty(len(fed), feed.tokens.shape[1] - 1, self.vocab_size)
        for column in range(inner.shape[1]):
            inner[:, column] = self.log_probs([(*row, *ids[: column + 1]) for row, ids in zip(rows, fed, strict=True)])
        feed.session.rows = [(*row, *ids) for row, ids in zip(rows, fed, strict=True)]
        token_log_probs = inner.gather(2, feed.tokens[:, 1:, None])[:, :, 0]
        return Scores(self.log_probs(feed.session.rows), token_log_probs, inner.amax(dim=2))

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int = 0) -> int:
        return 8 * rows * (prompt_tokens + max_tokens) + 4 * rows * self.vocab_size

    def score(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], observe: ObserveScores | None = None
    ) -> ScoredSequence:
        rows = self.score_rows([(*prompt_ids, *tokens[:index]) for index in range(len(tokens))])
        if observe is not None:
            observe(0, rows)
        found = rows.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        return ScoredSequence(tuple(found.tolist()), tuple(rows.amax(dim=1).tolist()))


class NgramModel(RowModel):
    """Counts of the next id after the last two ids. Shorter contexts fill in where there are few."""

    def __init__(self, traces: Sequence[Trace], activities: int) -> None:
        super().__init__(activities)
        self._counts: dict[Trace, np.ndarray] = {}
        for trace in traces:
            padded = (*[-1] * (ORDER - 1), *trace, activities)
            for at in range(ORDER - 1, len(padded)):
                for length in range(ORDER):
                    context = padded[at - length : at]
                    self._counts.setdefault(context, np.zeros(self.vocab_size))[padded[at]] += 1

    def score_rows(self, rows: Sequence[Trace]) -> Tensor:
        return torch.from_numpy(np.log([self._probs(row) for row in rows])).float()

    def _probs(self, row: Trace) -> np.ndarray:
        padded = (*[-1] * (ORDER - 1), *row)
        probs = np.full(self.vocab_size, 1 / self.vocab_size)
        for length in range(ORDER):
            count = self._counts.get(padded[len(padded) - length :], np.zeros(self.vocab_size))
            weight = _BACK_OFF if length else _UNSEEN * self.vocab_size
            probs = (count + weight * probs) / (count.sum() + weight)
        return probs


class _Lstm(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size + 1, EMBEDDED)  # the last one begins a trace
        self.lstm = nn.LSTM(EMBEDDED, HIDDEN, batch_first=True)
        self.last = nn.Linear(HIDDEN, vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids [N, T] to logits [N, T, V]. The first id begins a trace."""
        logits: Tensor = self.last(self.lstm(self.embedding(ids))[0])
        return logits


class LstmModel(RowModel):
    """One LSTM layer over the activities so far."""

    def __init__(self, traces: Sequence[Trace], activities: int, seed: int) -> None:
        super().__init__(activities)
        torch.manual_seed(seed)
        self._network = _Lstm(self.vocab_size)
        self.epochs = self._train(traces)

    def _train(self, traces: Sequence[Trace]) -> int:
        """Train until the held-out loss stops falling. Returns the best epoch."""
        held_out, training = traces[::_HELD_OUT], [each for at, each in enumerate(traces) if at % _HELD_OUT]
        optimizer = torch.optim.Adam(self._network.parameters(), lr=RATE)
        best, best_epoch, best_state = float("inf"), 0, self._network.state_dict()
        for epoch in range(1, EPOCHS_MAX + 1):
            for batch in torch.randperm(len(training)).split(BATCH):
                optimizer.zero_grad()
                self._loss([training[at] for at in batch.tolist()]).backward()
                optimizer.step()
            with torch.no_grad():
                loss = float(self._loss(held_out))
            if loss < best:
                best, best_epoch = loss, epoch
                best_state = {name: value.clone() for name, value in self._network.state_dict().items()}
            elif epoch >= best_epoch + PATIENCE:
                break
        self._network.load_state_dict(best_state)
        self._network.eval()
        return best_epoch

    def _loss(self, traces: Sequence[Trace]) -> Tensor:
        """The mean negative log-prob of an activity or end."""
        targets = self._padded([(*trace, self.eos_ids[0]) for trace in traces], -1)
        logits = self._network(self._with_start(traces))
        loss: Tensor = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        return loss

    def _with_start(self, rows: Sequence[Trace]) -> Tensor:
        """The rows behind the id that begins a trace. They are int64 [N, T], padded at their ends."""
        return self._padded([(self.vocab_size, *row) for row in rows], 0)

    def _padded(self, rows: Sequence[Trace], value: int) -> Tensor:
        parts: list[Any] = [torch.tensor(row) for row in rows]
        return nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=value)

    @torch.no_grad()
    def score_rows(self, rows: Sequence[Trace]) -> Tensor:
        logits = self._network(self._with_start(rows))
        at = torch.tensor([len(row) for row in rows])  # the place of a row's last id, as each row has one more in front
        found: Tensor = logits[torch.arange(len(rows)), at].log_softmax(dim=1)
        return found
