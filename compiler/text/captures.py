"""Finds where a finished text has the captured parts of a sequence.

The text is divided without the automata of the whole: a part ends where its own constraint is met. Where several
divisions satisfy, the first part is as long as possible, then the second, and so on; of alternatives, the first that
fits counts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from compiler.limits import Limits, ResourceGuard
from compiler.pushdown import END, PushdownMachine, Recognizer
from compiler.spec import (
    AnyPart,
    CapturePart,
    FreePart,
    OptionalPart,
    Part,
    RepeatPart,
    SequencePart,
    SequenceSpec,
    TextPart,
    TokenPart,
    all_parts,
    part_specs,
)

STEPS_MAX = 500_000  # ends of parts that are looked at for one text
_Place: TypeAlias = tuple[int, int]  # an offset, and how many parts were read before it


@dataclass(frozen=True, slots=True)
class CapturedSpan:
    """A captured part of a text.

    start, end  in characters
    tokens      the tokens that write it, from the first to the one behind the last; None where they are not known
    """

    name: str
    start: int
    end: int
    tokens: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A text and how it is written.

    named   by the offset of its first byte, the names of tokens that the constraint names; None where no tokens are
            known, so that names are read as text
    starts  the offset of each token's first byte
    """

    data: bytes
    named: dict[int, str] | None = None
    starts: tuple[int, ...] = ()

    def tokens(self, begin: int, end: int) -> tuple[int, int]:
        """The tokens that write some of these bytes."""
        if begin == end:
            at = bisect_left(self.starts, begin)
            return at, at
        return max(bisect_right(self.starts, begin) - 1, 0), bisect_left(self.starts, end)


def written_text(text: str, pieces: Sequence[tuple[bytes, str | None]], before: str = "") -> WrittenText:
    """A text that tokens have written behind `before`.

    text    the whole text: white space that the tokens wrote around it may be missing
    pieces  the bytes of each token, and its name where the constraint names it
    """
    data, written = text.encode(), before.encode() + b"".join(piece for piece, _ in pieces)
    # Where some is missing at the beginning, the text begins with another character.
    skipped = next(begin for begin in range(len(written) + 1) if written.startswith(data, begin))
    begin = len(before.encode()) - skipped
    starts = [max(each, 0) for each in accumulate((len(piece) for piece, _ in pieces[:-1]), initial=begin)]
    named = {start: name for start, (_, name) in zip(starts, pieces, strict=False) if name is not None}
    return WrittenText(data, named, tuple(starts))


@dataclass(frozen=True, slots=True, eq=False)
class CaptureReader:
    """The captures of one sequence. `machines` has the texts of its constraints, left to right; None for no text."""

    sequence: SequenceSpec
    machines: tuple[PushdownMachine | None, ...]

    def __post_init__(self) -> None:
        if len(self.machines) != len(part_specs(self.sequence.root)):
            raise ValueError("one machine for each constraint in the sequence")

    @property
    def nbytes(self) -> int:
        """The bytes of the machines."""
        machines = [machine for machine in self.machines if machine is not None]
        return sum(int(array.nbytes) for machine in machines for array in machine.arrays().values())

    def captures(self, text: WrittenText, limits: Limits) -> tuple[CapturedSpan, ...] | None:
        """The captures in a text.

        There are none where it is no text of the sequence. None where that takes too many steps.
        """
        try:
            division = _Division(self, text, limits)
            if len(text.data) not in division.ends(self.sequence.root, 0):
                return ()
            return tuple(division.captures(self.sequence.root, 0, len(text.data)))
        except _TooManySteps:
            return None


class _TooManySteps(Exception):
    """The text has too many divisions."""


class _Division:
    """The divisions of one text."""

    def __init__(self, reader: CaptureReader, text: WrittenText, limits: Limits) -> None:
        specs = (part.spec for part in all_parts(reader.sequence.root) if isinstance(part, TextPart))
        self._machines = dict(zip(specs, reader.machines, strict=True))
        self._text, self._guard, self._steps = text, ResourceGuard(limits), 0
        self._ends: dict[tuple[int, int], frozenset[int]] = {}

    def ends(self, part: Part, begin: int) -> frozenset[int]:
        """Where a text of the part may end, by its beginning."""
        key = id(part), begin  # parts live as long as their sequence
        if key not in self._ends:
            found = frozenset(self._found(part, begin))
            self._count(1 + len(found))
            self._ends[key] = found
        return self._ends[key]

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise _TooManySteps

    def captures(self, part: Part, begin: int, end: int) -> Iterable[CapturedSpan]:
        """The captures in a text of the part with this place."""
        match part:
            case CapturePart():
                yield self._capture(part, begin, end)
                yield from self.captures(part.part, begin, end)
            case OptionalPart():
                if end in self.ends(part.part, begin):
                    yield from self.captures(part.part, begin, end)
            case AnyPart():
                fitting = next(each for each in part.parts if end in self.ends(each, begin))
                yield from self.captures(fitting, begin, end)
            case SequencePart() | RepeatPart():
                for inside, first, last in self._divided(part, begin, end):
                    yield from self.captures(inside, first, last)

    def _capture(self, part: CapturePart, begin: int, end: int) -> CapturedSpan:
        if isinstance(part.part, FreePart):  # the stop is no part of what is captured
            stops = [each.encode() for each in part.part.until if self._text.data[begin:end].endswith(each.encode())]
            end -= max(map(len, stops), default=0)
        tokens = None if self._text.named is None else self._text.tokens(begin, end)
        start = len(self._text.data[:begin].decode())
        return CapturedSpan(part.name, start, start + len(self._text.data[begin:end].decode()), tokens)

    def _found(self, part: Part, begin: int) -> Iterable[int]:
        match part:
            case str():
                return self._literal(part, begin)
            case TokenPart():
                if self._text.named is None or self._text.named.get(begin) == part.name:
                    return self._literal(part.name, begin, named=True)
                return ()
            case FreePart():
                return self._free(part, begin)
            case TextPart():
                return self._texts(self._machines[part.spec], begin)
            case OptionalPart():
                return (*self.ends(part.part, begin), begin)
            case CapturePart():
                return self.ends(part.part, begin)
            case AnyPart():
                return frozenset[int]().union(*(self.ends(each, begin) for each in part.parts))
            case SequencePart() | RepeatPart():
                return {at for at, count in self._forward(part, begin)[0] if self._is_end(part, count)}

    def _next_named(self, begin: int) -> int:
        """The offset of the next token with a name."""
        return min((at for at in self._text.named or () if at >= begin), default=len(self._text.data))

    def _literal(self, text: str, begin: int, *, named: bool = False) -> Iterable[int]:
        data = text.encode()
        end = begin + len(data)
        fits = self._text.data.startswith(data, begin) and (named or end <= self._next_named(begin) or not data)
        return (end,) if fits else ()

    def _free(self, part: FreePart, begin: int) -> Iterable[int]:
        data, until = self._text.data, [each.encode() for each in part.until]
        last = self._next_named(begin)
        for text in part.without:
            at = data.find(text.encode(), begin)
            last = last if at < 0 else min(last, at + len(text.encode()) - 1)
        stops = [data.find(each, begin) + len(each) for each in until if data.find(each, begin) >= 0]
        stop = min(stops, default=len(data) + 1)
        known = self._text.named is not None
        ends, chars = [], 0
        for end in range(begin, min(last, stop) + 1):
            if end < len(data) and data[end] & 0xC0 == 0x80:
                continue
            chars += end > begin
            if part.max_chars is not None and chars > part.max_chars:
                break
            spent = part.max_tokens is not None and end > begin
            if known and part.max_tokens is not None:
                first, behind = self._text.tokens(begin, end)
                if behind - first > part.max_tokens:
                    break
                at_border = behind == len(self._text.starts) or self._text.starts[behind] == end
                spent = spent and behind - first == part.max_tokens and at_border
            if end == stop or spent or not until:
                ends.append(end)
        return ends

    def _texts(self, machine: PushdownMachine | None, begin: int) -> Iterable[int]:
        if machine is None:
            return ()
        recognizer, ends = Recognizer(machine, machine.start, self._guard), []
        for end in range(begin, self._next_named(begin) + 1):
            before = recognizer.configurations
            recognizer.read(END)
            if recognizer.accepted:
                ends.append(end)
            recognizer.configurations = before
            if not before or end == len(self._text.data):
                break
            recognizer.read(self._text.data[end])
        return ends

    # --- several parts, one after the other ---------------------------------------------------------------------------

    def _step(self, part: SequencePart | RepeatPart, count: int) -> tuple[Part, ...]:
        """What is read behind a number of parts. It is nothing where no more may follow."""
        if isinstance(part, SequencePart):
            return part.parts[count : count + 1]
        if part.maximum is not None and count >= part.maximum:
            return ()
        return (part.part,) if count == 0 or part.separator is None else (part.separator, part.part)

    def _is_end(self, part: SequencePart | RepeatPart, count: int) -> bool:
        return count == len(part.parts) if isinstance(part, SequencePart) else count >= part.minimum

    def _counted(self, part: SequencePart | RepeatPart, count: int) -> int:
        """The least number of parts behind which the same may follow."""
        if isinstance(part, SequencePart) or part.maximum is not None:
            return count
        return min(count, max(part.minimum, 1))

    def _forward(
        self, part: SequencePart | RepeatPart, begin: int
    ) -> tuple[set[_Place], dict[_Place, dict[_Place, int]]]:
        """The places that are reached, and the edges between them.

        An edge has the offset at which its separator ends.
        """
        met, edges, waiting = {(begin, 0)}, dict[_Place, dict[_Place, int]](), [(begin, 0)]
        while waiting:
            place = waiting.pop()
            step = self._step(part, place[1])
            middles = self.ends(step[0], place[0]) if len(step) > 1 else {place[0]}
            for middle in sorted(middles):
                for end in self.ends(step[-1], middle) if step else ():
                    target = end, self._counted(part, place[1] + 1)
                    edges.setdefault(place, {})[target] = middle  # the longest separator stays
                    self._count(1)
                    if target not in met:
                        met.add(target)
                        waiting.append(target)
        return met, edges

    def _divided(self, part: SequencePart | RepeatPart, begin: int, end: int) -> Iterable[tuple[Part, int, int]]:
        """The parts inside, each as long as the others allow."""
        met, edges = self._forward(part, begin)
        good = {place for place in met if place[0] == end and self._is_end(part, place[1])}
        before = dict[_Place, list[_Place]]()
        for place, targets in edges.items():
            for target in targets:
                before.setdefault(target, []).append(place)
        waiting = list(good)
        while waiting:
            for place in before.get(waiting.pop(), ()):
                if place not in good:
                    good.add(place)
                    waiting.append(place)
        at, passed = (begin, 0), set[_Place]()
        while not (at[0] == end and self._is_end(part, at[1])):
            passed.add(at)
            targets = edges[at]
            target = max(each for each in targets if each in good and each not in passed)
            step = self._step(part, at[1])
            if len(step) > 1:
                yield step[0], at[0], targets[target]
            yield step[-1], targets[target], target[0]
            at = target
