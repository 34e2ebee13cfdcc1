"""Counters of requests, running requests and tokens: the protocol, and an implementation in memory.

Admitting a request takes one call, because each call to a server costs a round trip. A place that is not renewed
becomes free after its lease, because its holder has died.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

MINUTE_S = 60
LEASE_S = 60.0
Names = Mapping[str, Sequence[str]]  # whose requests, and their own names


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that wants to come in.

    owner, member  whose it is, and what it is called itself
    window         what it counts as, of which there may be `cap` in any minute; 0 is without limit
    places         how many of its owner's may be at work at once, if it is work; 0 where it needs no place
    left           those of its owner's that have left, and may be thought to be at work still
    """

    owner: str
    member: str
    window: Literal["requests", "lookups"]
    cap: int
    places: int
    left: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """What came of it.

    missing  what there was too little of; what is refused counts nothing
    held     how many requests the window holds now
    reset_s  in how many seconds there may be one more
    """

    missing: Literal["", "requests", "places"]
    held: int
    reset_s: float


class Counters(Protocol):
    """The counts of all keys. Beam-tokens are counted by two counters: a window of entries would hold 50,000."""

    async def enter(self, entry: Admission) -> AdmissionResult:
        """Count a request and give it a place, or do neither."""

    async def leave(self, left: Names) -> None:
        """The places of these are free."""

    async def renew(self, held: Names) -> None:
        """Restart the leases of those members that hold a place.

        A member that has left, or that lost its place after its lease, gets no new place: it would never be given up.
        """

    async def charge(self, owner: str, tokens: int, cap: int) -> int | None:
        """Count beam-tokens, at most `cap` in a minute; where they are too many nothing, and say how many may come."""

    async def refund(self, owner: str, tokens: int) -> None:
        """Take a charge back."""

    async def settle(self, owner: str, tokens: int, job_id: str, remember_s: float) -> None:
        """The charge was for this job: take it back where the job was settled for before."""

    async def close(self) -> None:
        """Give connections up."""


@dataclass(slots=True)
class _Spent:
    """Beam-tokens of the current minute and of the one before, which counts less and less."""

    minute: int = 0
    current: int = 0
    before: int = 0

    def used(self, now: float) -> int:
        """How many count now."""
        minute = int(now // MINUTE_S)
        if minute != self.minute:
            self.before = self.current if minute == self.minute + 1 else 0
            self.minute, self.current = minute, 0
        return int(self.before * (1 - now % MINUTE_S / MINUTE_S) + self.current)

    def add(self, tokens: int) -> None:
        """Add tokens. A negative number is a refund, which may reduce the count of the minute before."""
        self.current += tokens
        if self.current < 0:
            self.before, self.current = max(0, self.before + self.current), 0


class MemoryCounters:
    """The counts of this process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._windows: defaultdict[tuple[str, str], deque[float]] = defaultdict(deque)
        self._places: dict[str, dict[str, float]] = {}
        self._spent: defaultdict[str, _Spent] = defaultdict(_Spent)
        self._settled: dict[str, float] = {}

    async def enter(self, entry: Admission) -> AdmissionResult:
        now, window = self._now(), self._windows[entry.window, entry.owner]
        while window and window[0] + MINUTE_S <= now:
            window.popleft()
        held = len(window)
        if entry.cap and held >= entry.cap:
            return AdmissionResult("requests", held, window[held - entry.cap] + MINUTE_S - now)
        if entry.places and not self._place(entry, now):
            return AdmissionResult("places", held, 0.0)
        if entry.cap:
            window.append(now)
            return AdmissionResult("", held + 1, window[0] + MINUTE_S - now)
        return AdmissionResult("", held, 0.0)

    def _place(self, entry: Admission, now: float) -> bool:
        kept = self._places.get(entry.owner, {})
        ends = {member: end for member, end in kept.items() if end > now and member not in entry.left}
        free = len(ends) < entry.places
        if free:
            ends[entry.member] = now + LEASE_S
        self._places[entry.owner] = ends
        return free

    async def leave(self, left: Names) -> None:
        for owner, members in left.items():
            ends = self._places.get(owner, {})
            for member in members:
                ends.pop(member, None)
            if not ends:
                self._places.pop(owner, None)

    async def renew(self, held: Names) -> None:
        for owner, members in held.items():
            ends = self._places.get(owner, {})
            ends.update({member: self._now() + LEASE_S for member in members if member in ends})

    async def charge(self, owner: str, tokens: int, cap: int) -> int | None:
        spent = self._spent[owner]
        left = cap - spent.used(self._now())
        if tokens > left:
            return max(0, left)
        spent.add(tokens)
        return None

    async def refund(self, owner: str, tokens: int) -> None:
        spent = self._spent[owner]
        spent.used(self._now())
        spent.add(-tokens)

    async def settle(self, owner: str, tokens: int, job_id: str, remember_s: float) -> None:
        now = self._now()
        while self._settled and next(iter(self._settled.values())) <= now:  # the first to come is the first to go
            del self._settled[next(iter(self._settled))]
        if job_id in self._settled:
            await self.refund(owner, tokens)
        else:
            self._settled[job_id] = now + remember_s

    async def close(self) -> None:
        """There is nothing to give up."""
