"""What a system is that answers under a constraint. Imports nothing of ours: it is loaded in every environment.

To add a system: a class with the three methods of `System` in a module of this package that imports nothing of ours but
this one (and `transformers_based`, which opens a model for those that take transformers' own), a line in
`catalogue.py`, and, unless it runs in our environment, a file `requirements/ITS_ENVIRONMENT.txt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class CannotSay(Exception):
    """A system has no way to say this constraint."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A constraint in all the ways that it can be said: a system takes the one that serves it best.

    pattern   a regex in the syntax that all engines read alike, which the answer matches in full; empty for none
    parts     regexes of which the answer matches every one, for systems that can intersect; empty where there are none
    concepts  each concept's forms, where the constraint is that a form of each occurs as a word; empty where it is not
    ordered   whether in this order
    """

    pattern: str = ""
    parts: tuple[str, ...] = ()
    concepts: tuple[tuple[str, ...], ...] = ()
    ordered: bool = False


class System(Protocol):
    """One of them. It is opened once, and then asked for one answer after another."""

    def open(self, folder: str) -> None:
        """Load the model, in the Hugging Face layout."""

    def constrain(self, wanted: Wanted) -> None:
        """Prepare for answers under this constraint. Raises CannotSay."""

    def answer(self, prompt: str, max_tokens: int) -> str:
        """The text that follows the prompt, of so many tokens at most, that which ends it among them."""
