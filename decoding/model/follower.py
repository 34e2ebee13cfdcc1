"""A process of a group that repeats the first one's calls.

    python -m decoding.model.follower MEMBER

MEMBER is a `GroupMember` as JSON. Calls come as JSON lines on standard input: [sessions that are gone, name,
arguments]. Replies are the steps of loading, on standard output. Where the input ends without "close" the first process
is gone, and this one ends at once, also in the middle of a pass.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import torch

from decoding.errors import ModelUnavailable, PromptEmpty
from decoding.model.group_member import (
    CLOSE,
    FAILED,
    LOADED,
    OPEN,
    OPENED,
    STARTED,
    GroupMember,
    decisions,
    join_group,
    leave_group,
    load_part,
    open_part,
)
from decoding.model.protocol import LanguageModel, StepInput


def repeat_calls(models: Mapping[str, LanguageModel[Any]], calls: Iterable[str]) -> None:
    """Make each call of the first process on this one's model. "close" ends it.

    models  the model as each adapter changes it, by the adapter's name; "": without one
    """
    sessions: dict[int, Any] = {}
    for line in calls:
        gone, name, *arguments = json.loads(line)
        for number in gone:
            sessions.pop(number, None)
        match name, arguments:
            case "prefill", [adapter, number, ids]:
                with contextlib.suppress(PromptEmpty):  # the first process refuses it, too
                    sessions[number] = models[adapter].prefill(ids)[0]
            case "step", [feeds]:
                models[""].step([
                    _feed(models[""], sessions[number], parents, tokens, undo=undo)
                    for number, parents, tokens, undo in feeds
                ])
            case "score", [adapter, ids, tokens]:
                models[adapter].score(ids, tokens)
            case _:
                return


def _feed(
    model: LanguageModel[Any], session: Any, parents: list[int], tokens: list[list[int]], *, undo: int | None
) -> StepInput[Any]:
    parent_rows, ids = (
        torch.tensor(numbers, dtype=torch.int64, device=model.device) for numbers in (parents, tokens)
    )
    return StepInput(session, parent_rows, ids, undo)


def follow(member: GroupMember, calls: Iterator[str], replies: IO[str]) -> None:
    """Load a part of the model, then repeat the first process's calls."""

    def reply(*words: object) -> None:
        replies.write(json.dumps(words) + "\n")
        replies.flush()

    reply(STARTED)
    try:
        join_group(member)
        part = load_part(member)
        reply(LOADED)
        if json.loads(next(calls))[1] != OPEN:
            return
        model = open_part(member, part)
    except ModelUnavailable as error:
        reply(FAILED, str(error))
        return
    reply(OPENED, *decisions(model))
    repeat_calls({name: model.with_adapter(name) for name in ("", *member.adapters)}, calls)


def _read_calls(calls: queue.SimpleQueue[str]) -> None:
    """Pass on the lines of standard input. Its end is that of this process."""
    for line in sys.stdin:
        calls.put(line)
        if f'"{CLOSE}"' in line:
            return
    os._exit(1)


def main() -> None:
    # The first process decides when this one ends: a signal to all processes of a service lets it drain first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)  # what a library prints is no reply
        calls = queue.SimpleQueue[str]()
        threading.Thread(target=_read_calls, args=(calls,), name="calls", daemon=True).start()
        follow(GroupMember(**json.loads(sys.argv[1])), iter(calls.get, ""), replies)
        leave_group()


if __name__ == "__main__":
    main()
