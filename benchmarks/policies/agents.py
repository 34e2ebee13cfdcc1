"""What agents want to do next. They want it at random, against the rules, or as a small model finds probable."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from app.models import open_model_files
from app.models.tokenizer import open_tokenizer
from benchmarks.policies.domains import Domain, RandomArguments
from compiler.pipeline import compile_spec
from compiler.policies import Event, EventKind
from compiler.spec import spec_from_json
from decoding.model import HuggingFaceModel
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive

REPLY = Event(EventKind.REPLY)
_REPLIES = 0.3  # the chance that an agent without a model wants to reply
_UPDATES = 0.8  # the chance that the adversarial agent wants no look-up
_LOOK_UPS = ("get_", "find_", "search_", "list_", "think", "calc")
_DRAWS, _EVENTS, _NAME_TOKENS = 8, 2, 40  # names that a model draws at once, past events that it reads


class Wishes(Protocol):
    """Proposes events to a conversation."""

    def __call__(self, events: Sequence[Event], left: int, arguments: RandomArguments) -> Iterator[Event]:
        """What the agent wants, without end. It may want the same event twice.

        left  the calls that may still be made
        """


class RandomAgent:
    """Wants any event, or updates, transfers and replies where it is adversarial."""

    def __init__(self, domain: Domain, rng: random.Random, *, adversarial: bool = False) -> None:
        self._tools, self._domain, self._rng = sorted(domain.tools), domain, rng
        self._updates = [tool for tool in self._tools if not tool.startswith(_LOOK_UPS)]
        self._adversarial = adversarial

    def __call__(self, events: Sequence[Event], left: int, arguments: RandomArguments) -> Iterator[Event]:
        while True:
            updates = self._adversarial and self._rng.random() < _UPDATES
            if left == 0 or self._rng.random() < _REPLIES:
                yield REPLY
                continue
            tool = self._rng.choice(self._updates if updates else self._tools)
            yield Event(EventKind.CALL, tool, arguments.draw(self._domain.tools[tool]))


class EventModel:
    """A small language model that draws the name of the next event.

    ms  how long each draw took
    """

    def __init__(self, folder: Path) -> None:
        files = open_model_files(str(folder))
        self.name, self.ms = folder.resolve().name, list[float]()
        self._model = HuggingFaceModel.load(str(folder), device="cpu")
        self._vocabulary = files.vocabulary
        self._tokenizer = open_tokenizer(files.tokenizer_file, self._model.vocab_size)
        self._prepared: dict[str, PreparedConstraint] = {}
        self._drawn: dict[tuple[str, str], tuple[str, ...]] = {}

    def names(self, domain: Domain, events: Sequence[Event]) -> tuple[str, ...]:
        """Names that the model draws, each of a tool or "reply". After the same last events they are the same."""
        transcript = _transcript(events)
        if (domain.name, transcript) not in self._drawn:
            self._drawn[domain.name, transcript] = self._draw(domain, transcript)
        return self._drawn[domain.name, transcript]

    def _draw(self, domain: Domain, transcript: str) -> tuple[str, ...]:
        started = time.perf_counter()
        ids = self._tokenizer.encode(transcript).ids
        options = SamplingOptions(_NAME_TOKENS, n=_DRAWS, seed=len(self._drawn))
        found = drive(self._model, ids, Sampling(self._constraint(domain), options))
        texts = [b"".join(self._vocabulary.written[token] or b"" for token in each.tokens) for each in found]
        self.ms.append((time.perf_counter() - started) * 1000)
        return tuple(text.decode().strip() for text in texts)

    def _constraint(self, domain: Domain) -> PreparedConstraint:
        if domain.name not in self._prepared:
            spec = spec_from_json({"choice": [*sorted(domain.tools), "reply"]})
            automaton = compile_spec(spec, self._vocabulary).tokens
            self._prepared[domain.name] = PreparedConstraint.prepare(automaton, self._model.device)
        return self._prepared[domain.name]


class ModelAgent:
    """Wants what a model draws, with arguments at random, and then anything."""

    def __init__(self, model: EventModel, domain: Domain, rng: random.Random) -> None:
        self._model, self._domain, self._rng = model, domain, rng
        self._any = RandomAgent(domain, rng)

    def __call__(self, events: Sequence[Event], left: int, arguments: RandomArguments) -> Iterator[Event]:
        names = self._model.names(self._domain, events)
        for name in self._rng.sample(names, len(names)):
            if left == 0 or name == "reply":
                yield REPLY
            else:
                yield Event(EventKind.CALL, name, arguments.draw(self._domain.tools[name]))
        yield from self._any(events, left, arguments)


def _transcript(events: Sequence[Event]) -> str:
    """The end of a conversation, in words."""
    lines = ["A customer asks for help."]
    for event in events[-_EVENTS:]:
        match event.kind:
            case EventKind.CALL:
                lines.append(f"The agent uses {event.tool}.")
            case EventKind.RESULT:
                lines.append("It works." if isinstance(event.value, dict) and event.value.get("ok") else "It fails.")
            case _:
                lines.append("The agent replies, and the customer says: yes.")
    return " ".join([*lines, "The agent uses"])
