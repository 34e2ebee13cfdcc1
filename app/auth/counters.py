"""Counters of requests, running requests and tokens, with an implementation in memory.

Admitting a request takes one call, because each call to a server costs a round trip. A concurrency slot that is not
renewed becomes free after its lease, because its process has died.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

MINUTE_S = 60
LEASE_S = 60.0  # of a concurrency slot; the limiter renews it three times in that time
Members = Mapping[str, Sequence[str]]  # owner: ids of its requests


@dataclass(frozen=True, slots=True)
class Admission:
    """A request to admit.

    owner     the holder of the key
    member    the id of the request
    window    the rate limit it counts against
    cap       requests of this window allowed in any minute; 0 is unlimited
    slots     requests of the owner that may run at once; 0 if this one needs no slot
    released  requests of the owner whose slots may not be reported free yet
    """

    owner: str
    member: str
    window: Literal["requests", "lookups"]
    cap: int
    slots: int
    released: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The result of an admission; a rejected request is not counted.

    missing  the limit that rejects it, empty if it is admitted
    count    requests in the window now
    reset_s  seconds until the window allows one more
    """

    missing: Literal["", "requests", "slots"]
    count: int
    reset_s: float


class Counters(Protocol):
    """The counts of all keys.

    Beam-tokens have one counter for this minute and one for the last, because a window of entries would hold 50,000.
    """

    async def acquire(self, admission: Admission) -> AdmissionResult:
        """Counts a request and gives it a slot, or does neither."""

    async def release(self, released: Members) -> None:
        """Frees the slots of these requests."""

    async def renew(self, running: Members) -> None:
        """Restarts the leases of the requests that have a slot.

        A request that released its slot, or whose lease expired, gets no new one: that slot would leak.
        """

    async def charge(self, owner: str, tokens: int, cap: int) -> int | None:
        """Counts beam-tokens and returns None. If they exceed `cap` in a minute, returns how many remain."""

    async def refund(self, owner: str, tokens: int) -> None:
        """Takes a charge back."""

    async def settle(self, owner: str, tokens: int, job_id: str, ttl_s: float) -> None:
        """Assigns a charge to a job. If the job was charged before, the charge is refunded."""

    async def close(self) -> None:
        """Closes the connections."""


@dataclass(slots=True)
class _TokenWindow:
    """Beam-tokens of the current and the previous minute.

    The weight of the previous one falls to 0 within this minute.
    """

    minute: int = 0
    current: int = 0
    before: int = 0

    def used(self, now: float) -> int:
        """The weighted count at this time."""
        minute = int(now // MINUTE_S)
        if minute != self.minute:
            self.before = self.current if minute == self.minute + 1 else 0
            self.minute, self.current = minute, 0
        return int(self.before * (1 - now % MINUTE_S / MINUTE_S) + self.current)

    def add(self, tokens: int) -> None:
        """Adds tokens. A negative number is a refund, which may reduce the count of the previous minute."""
        self.current += tokens
        if self.current < 0:
            self.before, self.current = max(0, self.before + self.current), 0


class MemoryCounters:
    """Counters in the memory of this process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._windows: defaultdict[tuple[str, str], deque[float]] = defaultdict(deque)
        self._slots: dict[str, dict[str, float]] = {}
        self._tokens: defaultdict[str, _TokenWindow] = defaultdict(_TokenWindow)
        self._settled: dict[str, float] = {}

    async def acquire(self, admission: Admission) -> AdmissionResult:
        now, window = self._now(), self._windows[admission.window, admission.owner]
        while window and window[0] + MINUTE_S <= now:
            window.popleft()
        count = len(window)
        if admission.cap and count >= admission.cap:
            return AdmissionResult("requests", count, window[count - admission.cap] + MINUTE_S - now)
        # The slot comes before the window: a rejected request must count in neither.
        if admission.slots and not self._acquire_slot(admission, now):
            return AdmissionResult("slots", count, 0.0)
        if admission.cap:
            window.append(now)
            return AdmissionResult("", count + 1, window[0] + MINUTE_S - now)
        return AdmissionResult("", count, 0.0)

    def _acquire_slot(self, admission: Admission, now: float) -> bool:
        leases = self._slots.get(admission.owner, {})
        leases = {member: end for member, end in leases.items() if end > now and member not in admission.released}
        free = len(leases) < admission.slots
        if free:
            leases[admission.member] = now + LEASE_S
        self._slots[admission.owner] = leases
        return free

    async def release(self, released: Members) -> None:
        for owner, members in released.items():
            leases = self._slots.get(owner, {})
            for member in members:
                leases.pop(member, None)
            if not leases:
                self._slots.pop(owner, None)

    async def renew(self, running: Members) -> None:
        for owner, members in running.items():
            leases = self._slots.get(owner, {})
            leases.update({member: self._now() + LEASE_S for member in members if member in leases})

    async def charge(self, owner: str, tokens: int, cap: int) -> int | None:
        window = self._tokens[owner]
        remaining = cap - window.used(self._now())
        if tokens > remaining:
            return max(0, remaining)
        window.add(tokens)
        return None

    async def refund(self, owner: str, tokens: int) -> None:
        window = self._tokens[owner]
        window.used(self._now())  # moves the window to the current minute
        window.add(-tokens)

    async def settle(self, owner: str, tokens: int, job_id: str, ttl_s: float) -> None:
        now = self._now()
        while self._settled and next(iter(self._settled.values())) <= now:  # ordered by time of expiry
            del self._settled[next(iter(self._settled))]
        if job_id in self._settled:
            await self.refund(owner, tokens)
        else:
            self._settled[job_id] = now + ttl_s

    async def close(self) -> None:
        """There are no connections."""
