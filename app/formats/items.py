"""The items of an answer: thoughts, replies and calls in a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from app.formats.answer_reader import AnswerParts


@dataclass(frozen=True, slots=True)
class OutputItem:
    """One thought, reply or call of an answer. `call` is its number among the calls."""

    kind: Literal["thought", "reply", "function", "custom"]
    text: str
    name: str = ""
    call: int = 0


def output_items(parts: AnswerParts, finished: bool, with_thought: bool) -> list[OutputItem]:
    """The items that the parts make, in their order. Only the last one may still grow; a finished answer has one."""
    items = list[OutputItem]()
    if parts.reasoning and with_thought:
        items.append(OutputItem("thought", parts.reasoning))
    if parts.content or (finished and not parts.calls):
        items.append(OutputItem("reply", parts.content))
    for number, call in enumerate(parts.calls):
        items.append(OutputItem("custom" if call.custom else "function", call.arguments, call.name, number))
    return items


@dataclass(slots=True)
class ItemProgress:
    """How much of a list of items was sent.

    started, ended  numbers of items
    text            what was sent of the open one
    """

    started: int = 0
    ended: int = 0
    text: str = ""

    def advance(
        self, items: Sequence[OutputItem], finished: bool
    ) -> Iterator[tuple[Literal["begin", "delta", "end"], int, str]]:
        """The steps from what was sent to these items.

        Each has an item's number, and a delta has the added text.
        """
        for number in range(self.ended, len(items)):
            if number == self.started:
                self.started, self.text = number + 1, ""
                yield "begin", number, ""
            if added := items[number].text[len(self.text) :]:
                self.text = items[number].text
                yield "delta", number, added
            if finished or number + 1 < len(items):
                self.ended = number + 1
                yield "end", number, ""
