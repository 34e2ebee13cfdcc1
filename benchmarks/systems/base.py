"""The protocol of a system that answers under a constraint.

This module is loaded in every environment and imports nothing else of this project. To add a system: a class with the
three methods of `System` in a module of this package that imports only this module (and `transformers_systems`, for a
system that takes a model of transformers), a line in `catalogue.py`, and, for another environment than ours, a file
`requirements/ENVIRONMENT.txt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ConstraintNotSupported(Exception):
    """The system has no form of constraint that expresses this one."""


@dataclass(frozen=True, slots=True)
class TextConstraint:
    """One constraint in several equivalent forms. A system takes the form that suits it best.

    pattern   a regex, in a syntax that all engines read alike, that the answer matches in full; empty: none
    parts     regexes that the answer matches all, for systems that can intersect; empty: none
    concepts  the forms of each concept, of which one must occur as a word; empty: the constraint is not of this kind
    ordered   whether the concepts must occur in this order
    """

    pattern: str = ""
    parts: tuple[str, ...] = ()
    concepts: tuple[tuple[str, ...], ...] = ()
    ordered: bool = False

    def regex(self) -> str:
        """The pattern. Raises ConstraintNotSupported if there is none."""
        if not self.pattern:
            raise ConstraintNotSupported("the system takes only regexes")
        return self.pattern


class System(Protocol):
    """A system. It is opened once and then answers one question after another."""

    def open(self, folder: str) -> None:
        """Load the model from a folder in the Hugging Face layout."""

    def constrain(self, constraint: TextConstraint) -> None:
        """Prepare the constraint of the next answers. Raises ConstraintNotSupported."""

    def answer(self, prompt: str, max_tokens: int) -> str:
        """The text after the prompt, limited to `max_tokens` including EOS."""
