"""What the server writes in one turn of its event loop leaves together, and nothing waits that must not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from app.http_server import COALESCED_BYTES_MAX, CoalescingTransport


class Transport:
    """Records the calls in order."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.done.append(given[0] if name == "write" else name)

    def get_write_buffer_size(self) -> int:
        return 5


async def gathering() -> tuple[CoalescingTransport, Transport]:
    transport = Transport()
    return CoalescingTransport(cast(asyncio.Transport, transport), asyncio.get_running_loop()), transport


async def test_a_header_and_its_body_are_sent_together() -> None:
    gathered, transport = await gathering()
    for piece in (b"header", b"", b"body", b""):
        gathered.write(piece)
    assert transport.done == [] and gathered.get_write_buffer_size() == len(b"headerbody") + 5
    await asyncio.sleep(0)
    assert transport.done == [b"headerbody"] and gathered.get_write_buffer_size() == 5
    gathered.write(b"more")
    await asyncio.sleep(0)
    assert transport.done == [b"headerbody", b"more"]


async def test_large_writes_are_sent_at_once_and_close_flushes() -> None:
    gathered, transport = await gathering()
    gathered.write(b"head")
    gathered.write(b"x" * COALESCED_BYTES_MAX)
    assert transport.done == [b"head" + b"x" * COALESCED_BYTES_MAX]
    gathered.write(b"last")
    gathered.close()
    assert transport.done[1:] == [b"last", "close"]
    gathered.write(b"a refusal")
    gathered.write_eof()
    assert transport.done[3:] == [b"a refusal", "write_eof"]
    await asyncio.sleep(0)
    assert len(transport.done) == 5
