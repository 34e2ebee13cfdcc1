"""Where the parts of an answer's constraint stand in its request.

Answers that may call tools have a constraint of several parts: the schemas of the tools, and the request's own
constraint of a reply. Errors name the request's paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY

from pydantic.dataclasses import dataclass

from app.messages.parts import CONFIG


@dataclass(frozen=True, config=CONFIG)
class RequestPlace:
    """A part of a constraint that stands elsewhere in the request.

    inside      its path in the constraint, with a dot at its end
    tool        the name of the tool whose parameters it describes; empty for the constraint of a reply
    parameters  the path of these parameters in the request
    within      its path in the parameters
    is_text     whether the tool is a custom one: its parameters are a grammar, in which nothing has a path
    """

    inside: str
    _: KW_ONLY
    tool: str = ""
    parameters: str = ""
    within: str = ""
    is_text: bool = False

    def path_of(self, field: str) -> str:
        """The request's path of a field of the constraint."""
        return ".".join(filter(None, (self.parameters, self.below(field))))

    def blame(self, field: str) -> str:
        """The tool at fault and the place, to begin a message.

        Empty in a reply.
        """
        if not self.tool:
            return ""
        place = self.below(field)
        return f'tool "{self.tool}"{place and f", {place}"}: '

    def below(self, field: str) -> str:
        """The path of a field in the parameters, or in the reply."""
        return "" if self.is_text else ".".join(filter(None, (self.within, field[len(self.inside) :])))


def place_of(field: str, places: Sequence[RequestPlace]) -> RequestPlace | None:
    """The part in which a field of a constraint stands."""
    return next((place for place in places if f"{field}.".startswith(place.inside)), None)
