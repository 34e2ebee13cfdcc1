"""Two small models of the next activity, as scorers of labels.

Ids are the numbers of activities, the id behind the last one ends a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from decoding.label_scoring import LabelScorer

ORDER = 3  # of the n-gram model
_BACK_OFF = 2.0  # occurrences of a context that weigh as much as the shorter context
_UNSEEN = 0.1  # occurrences added to every id
HIDDEN, EMBEDDED = 100, 32
EPOCHS_MAX, PATIENCE, BATCH, RATE = 80, 8, 32, 0.003
_HELD_OUT = 10  # every tenth trace decides when training ends
Trace = tuple[int, ...]


class CachedScorer:
    """A scorer that computes the log-probs after each prefix once.

    The systems of the benchmark ask for the same prefixes.
    """

    def __init__(self, scorer: LabelScorer) -> None:
        self._scorer = scorer
        self._known: dict[Trace, Any] = {}

    def __call__(self, prefixes: list[list[int]]) -> Any:
        rows = [tuple(prefix) for prefix in prefixes]
        unknown = list(dict.fromkeys(row for row in rows if row not in self._known))
        if unknown:
            self._known |= dict(zip(unknown, self._scorer([list(row) for row in unknown]), strict=True))
        return np.stack([self._known[row] for row in rows])


class NgramScorer:
    """Counts of the next id after the last two ids. Shorter contexts fill in where there are few."""

    def __init__(self, traces: Sequence[Trace], activities: int) -> None:
        self._ids = activities + 1
        self._counts: dict[Trace, np.ndarray] = {}
        for trace in traces:
            padded = (*[-1] * (ORDER - 1), *trace, activities)
            for at in range(ORDER - 1, len(padded)):
                for length in range(ORDER):
                    context = padded[at - length : at]
                    self._counts.setdefault(context, np.zeros(self._ids))[padded[at]] += 1

    def __call__(self, prefixes: list[list[int]]) -> Any:
        return np.log([self._probs(prefix) for prefix in prefixes])

    def _probs(self, row: Sequence[int]) -> np.ndarray:
        padded = (*[-1] * (ORDER - 1), *row)
        probs = np.full(self._ids, 1 / self._ids)
        for length in range(ORDER):
            count = self._counts.get(padded[len(padded) - length :], np.zeros(self._ids))
            weight = _BACK_OFF if length else _UNSEEN * self._ids
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


class LstmScorer:
    """One LSTM layer over the activities so far."""

    def __init__(self, traces: Sequence[Trace], activities: int, seed: int) -> None:
        self._ids = activities + 1
        torch.manual_seed(seed)
        self._network = _Lstm(self._ids)
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
        targets = self._padded([(*trace, self._ids - 1) for trace in traces], -1)
        logits = self._network(self._with_start(traces))
        loss: Tensor = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        return loss

    def _with_start(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The rows behind the id that begins a trace. They are int64 [N, T], padded at their ends."""
        return self._padded([(self._ids, *row) for row in rows], 0)

    def _padded(self, rows: Sequence[Sequence[int]], value: int) -> Tensor:
        parts: list[Any] = [torch.tensor(row) for row in rows]
        return nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=value)

    @torch.no_grad()
    def __call__(self, prefixes: list[list[int]]) -> Any:
        logits = self._network(self._with_start(prefixes))
        at = torch.tensor([len(prefix) for prefix in prefixes])  # of a row's last id, as each has one more in front
        return logits[torch.arange(len(prefixes)), at].log_softmax(dim=1).numpy()
