"""The letters that events are to the rules.

A letter is the kind of an event, its tool, and which conditions hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compiler.automata import CharDfa, everything, is_empty
from compiler.json_schema import schema_texts
from compiler.limits import ResourceGuard
from compiler.policies.events import Event, EventCondition, EventKind, EventProposition, values_apart

ANY_OBJECT: dict[str, Any] = {"type": "object"}
Writable = Callable[[dict[str, Any]], bool]
"""Whether a JSON Schema has an instance."""


class EventLetter(NamedTuple):
    """What the rules see of an event. `tool` is empty for a tool that no rule names.

    holds  the conditions that hold, by their number among those on the tool's events of this kind
    """

    kind: EventKind
    tool: str
    holds: frozenset[int]


@dataclass(frozen=True, slots=True)
class Letters:
    """All letters of a policy.

    conditions  those that the rules put on the calls, and on the results, of a tool
    letters     every combination of these, whether an event can be it or not
    """

    conditions: dict[tuple[EventKind, str], tuple[EventCondition, ...]]
    letters: tuple[EventLetter, ...]
    _number: dict[EventLetter, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._number.update({letter: number for number, letter in enumerate(self.letters)})

    def number(self, event: Event) -> int:
        """The number of the letter that an event is."""
        if event.kind is EventKind.REPLY:
            return self._number[EventLetter(EventKind.REPLY, "", frozenset())]
        conditions = self.conditions.get((event.kind, event.tool))
        if conditions is None:
            return self._number[EventLetter(event.kind, "", frozenset())]
        holds = frozenset(index for index, condition in enumerate(conditions) if condition.holds(event.value))
        return self._number[EventLetter(event.kind, event.tool, holds)]

    def of(self, kind: EventKind, tool: str) -> list[int]:
        """The letters of a tool's calls or results."""
        name = tool if (kind, tool) in self.conditions else ""
        return [number for number, letter in enumerate(self.letters) if letter.kind is kind and letter.tool == name]

    def true_names(self, propositions: Mapping[str, EventProposition]) -> list[frozenset[str]]:
        """For each letter, the names of the propositions that hold there."""
        return [
            frozenset(name for name, proposition in propositions.items() if self._holds(letter, proposition))
            for letter in self.letters
        ]

    def _holds(self, letter: EventLetter, proposition: EventProposition) -> bool:
        if letter.kind is not proposition.kind or proposition.tool not in (None, letter.tool):
            return False
        numbers = self.conditions.get((letter.kind, letter.tool), ())
        return all(numbers.index(condition) in letter.holds for condition in proposition.conditions)

    def satisfiable(self, kind: EventKind, tool: str, schema: Mapping[str, Any], writable: Writable) -> list[int]:
        """The letters of the tool's events whose value fits a schema."""
        letters = self.of(kind, tool)
        if len(letters) == 1:
            return letters
        conditions = self.conditions[kind, tool]
        return [number for number in letters if _fits(conditions, self.letters[number].holds, schema, writable)]


def writable_within(guard: ResourceGuard) -> Writable:
    """Tells whether an instance of a schema can be written."""

    def writable(schema: dict[str, Any]) -> bool:
        texts = schema_texts(schema, "compact", None, lambda *_: everything(), guard=guard)
        return not isinstance(texts, CharDfa) or not is_empty(texts.dfa)

    return writable


def letters_of(propositions: Iterable[EventProposition], guard: ResourceGuard) -> Letters:
    """The letters that tell these propositions apart. Raises LimitExceeded over letters_max."""
    conditions: dict[tuple[EventKind, str], dict[EventCondition, None]] = {}
    for proposition in propositions:
        if proposition.tool is not None:
            conditions.setdefault((proposition.kind, proposition.tool), {}).update(
                dict.fromkeys(proposition.conditions)
            )
    letters: list[EventLetter] = []
    for (kind, tool), found in conditions.items():
        guard.check("letters_max", len(letters) + 2 ** min(len(found), 30))
        for size in range(len(found) + 1):
            letters += [
                EventLetter(kind, tool, frozenset(part)) for part in itertools.combinations(range(len(found)), size)
            ]
    letters += [EventLetter(kind, "", frozenset()) for kind in EventKind]
    return Letters({key: tuple(found) for key, found in conditions.items()}, tuple(letters))


def _fits(
    conditions: Sequence[EventCondition], holds: frozenset[int], schema: Mapping[str, Any], writable: Writable
) -> bool:
    # Most results are decided without their schemas, whose compilations take most of a policy's time.
    found = None if schema else some_value_fits(conditions, holds)
    return writable(with_parts(schema, literals(conditions, holds))) if found is None else found


def some_value_fits(conditions: Sequence[EventCondition], holds: frozenset[int]) -> bool | None:
    """Whether of some JSON value the conditions in `holds` hold alone.

    None where one path continues another one, so that their values depend on each other.
    """
    paths = {condition.path for condition in conditions}
    if any(path != other and other[: len(path)] == path for path in paths for other in paths):
        return None
    return all(_path_fits(path, conditions, holds) for path in paths)


def _path_fits(path: tuple[str, ...], conditions: Sequence[EventCondition], holds: frozenset[int]) -> bool:
    here = [(condition, index in holds) for index, condition in enumerate(conditions) if condition.path == path]
    values = values_apart([condition for condition, _ in here])
    return any(all(condition.holds(value) is held for condition, held in here) for value in values)


def literals(conditions: Sequence[EventCondition], holds: frozenset[int]) -> list[dict[str, Any]]:
    """The schemas of conditions. Those in `holds` stand as they are, the others negated."""
    return [
        condition.schema() if index in holds else {"not": condition.schema()}
        for index, condition in enumerate(conditions)
    ]


def with_parts(schema: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A schema whose values satisfy the parts as well. References into the schema go on leading where they did."""
    if not parts:
        return dict(schema)
    # What a part looks at must not count as evaluated, so it stands under a double negation.
    hidden = [{"not": {"not": part}} for part in parts] if "unevaluatedProperties" in schema else list(parts)
    moved = {key: value for key, value in schema.items() if key != "$ref"}
    # In older drafts nothing beside a $ref counts.
    reference = [{"$ref": schema["$ref"]}] if "$ref" in schema else []
    return moved | {"allOf": [*moved.get("allOf", []), *reference, *hidden]}


def schema_of(
    schema: Mapping[str, Any],
    conditions: Sequence[EventCondition],
    allowed: set[frozenset[int]],
    possible: set[frozenset[int]],
) -> dict[str, Any] | None:
    """The schema of the values whose conditions are allowed. None if there is none.

    `possible` are the combinations that occur. The others may be allowed or not, whichever is shorter.
    """
    part = _decided(conditions, 0, allowed & possible, possible - allowed)
    if part is False:
        return None
    return dict(schema) if part is True else with_parts(schema, [part])


def _decided(
    conditions: Sequence[EventCondition], at: int, allowed: set[frozenset[int]], refused: set[frozenset[int]]
) -> dict[str, Any] | bool:
    """A schema of the allowed combinations. It tests the conditions from `at` on."""
    if not refused:
        return bool(allowed)
    if not allowed:
        return False
    yes, no = (
        _decided(
            conditions, at + 1,
            {each for each in allowed if (at in each) is value}, {each for each in refused if (at in each) is value},
        )
        for value in (True, False)
    )  # fmt: skip
    if yes == no:
        return yes
    condition = conditions[at].schema()
    branches = [_both(condition, yes), _both({"not": condition}, no)]
    left = [branch for branch in branches if branch is not False]
    return left[0] if len(left) == 1 else {"anyOf": left}


def _both(condition: dict[str, Any], rest: dict[str, Any] | bool) -> dict[str, Any] | bool:
    if isinstance(rest, bool):
        return condition if rest else False
    return {"allOf": [condition, rest]}
