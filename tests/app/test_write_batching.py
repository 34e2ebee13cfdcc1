"""Writes of one event loop turn are sent together.

Large writes and closing do not wait.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from app.http_server import COALESCED_BYTES_MAX, CoalescingTransport


class Transport:
    """Records the calls in order."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append(arguments[0] if name == "write" else name)

    def get_write_buffer_size(self) -> int:
        return 5


async def open_transports() -> tuple[CoalescingTransport, Transport]:
    transport = Transport()
    return CoalescingTransport(cast(asyncio.Transport, transport), asyncio.get_running_loop()), transport


async def test_a_header_and_its_body_are_sent_together() -> None:
    coalescing, transport = await open_transports()
    for piece in (b"header", b"", b"body", b""):
        coalescing.write(piece)
    assert transport.calls == [] and coalescing.get_write_buffer_size() == len(b"headerbody") + 5
    await asyncio.sleep(0)
    assert transport.calls == [b"headerbody"] and coalescing.get_write_buffer_size() == 5
    coalescing.write(b"more")
    await asyncio.sleep(0)
    assert transport.calls == [b"headerbody", b"more"]


async def test_large_writes_are_sent_at_once_and_close_flushes() -> None:
    coalescing, transport = await open_transports()
    coalescing.write(b"head")
    coalescing.write(b"x" * COALESCED_BYTES_MAX)
    assert transport.calls == [b"head" + b"x" * COALESCED_BYTES_MAX]
    coalescing.write(b"last")
    coalescing.close()
    assert transport.calls[1:] == [b"last", "close"]
    coalescing.write(b"a refusal")
    coalescing.write_eof()
    assert transport.calls[3:] == [b"a refusal", "write_eof"]
    await asyncio.sleep(0)
    assert len(transport.calls) == 5
