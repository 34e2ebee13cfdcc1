"""A model that several processes share, as their first one sees it.

The first process runs the search. Before it makes a call of the model, it sends the call to the other processes, its
followers, which repeat it: every forward pass needs all of them. Calls go over pipes and only sums over torch's
collectives, so a group without work waits for nothing that could time out. A group that loses a process has lost a part
of the model, so it ends as a whole.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import queue
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from decoding.errors import GroupLost, ModelUnavailable, PromptEmpty
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
    require_divisible,
)
from decoding.model.huggingface import HuggingFaceModel
from decoding.model.protocol import ObserveScores, ScoredSequence, Scores, StepInput, WholePrompts

_TIMEOUT_S = 60.0
_END_S_MAX = 10.0  # time of a follower to end


@dataclass(slots=True, weakref_slot=True, eq=False)
class GroupSession:
    """The rows of one generation. `number` names the session to the followers."""

    number: int
    session: Any


class Follower:
    """Another process of the group.

    on_end  is called with a reason, in a thread, once the process has ended without giving one itself
    """

    def __init__(
        self, member: GroupMember, environment: Mapping[str, str] | None, on_end: Callable[[str], None]
    ) -> None:
        variables = None if environment is None else {**environment, "LOCAL_RANK": str(member.rank)}
        self._rank, self._on_end = member.rank, on_end
        self._process = subprocess.Popen(
            [sys.executable, "-m", "decoding.model.follower", json.dumps(asdict(member))], env=variables, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0,  # Ctrl-C reaches the first process only
        )
        self._replies = queue.SimpleQueue[list[object]]()
        threading.Thread(target=self._read, name=f"follower-{member.rank}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, *expected: object) -> None:
        """Wait for a reply. Raises ModelUnavailable for another one, GroupLost where the process ends without any."""
        reply = self._replies.get()
        if not reply:
            raise GroupLost(f"process {self._rank} of the group has ended")
        if reply != list(expected):
            raise ModelUnavailable(f"process {self._rank} of the group: {': '.join(map(str, reply))}")

    def send(self, line: str) -> None:
        """Send a call. Raises OSError where the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def end(self) -> None:
        """End the process by the end of its input. A process that hangs is killed."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        reply: list[object] = []
        with self._process.stdout as replies:
            for line in replies:
                reply = json.loads(line)
                self._replies.put(reply)
        status = self._process.wait()
        if reply[:1] != [FAILED]:
            self._on_end(f"process {self._rank} of the group ended with status {status}")
        self._replies.put([])


class TensorParallelModel(WholePrompts[GroupSession]):
    """A `LanguageModel` that several processes compute; see `load`. One call of the model is made at a time.

    Raises GroupLost from every call once the group has lost a process. `close` ends the other processes.
    """

    def __init__(self, group: Group, model: HuggingFaceModel) -> None:
        self._group, self._model = group, model
        self.vocab_size, self.eos_ids, self.context_length = model.vocab_size, model.eos_ids, model.context_length
        self.device, self.tolerance = model.device, model.tolerance
        self.rows_independent, self.supports_batching = model.rows_independent, model.supports_batching
        self.prefix_sharing_disabled_reason = model.prefix_sharing_disabled_reason
        self._numbers = itertools.count()
        self._adapter = ""

    @classmethod
    def load(
        cls, path: str, *, size: int, device: str = "auto", dtype: str = "auto", timeout_s: float = _TIMEOUT_S,
        adapters: Mapping[str, str] | None = None, batch_invariant: bool = True,
        environment: Mapping[str, str] | None = None, on_loss: Callable[[str], None] = lambda reason: None,
    ) -> TensorParallelModel:
        """Load a model into this process and `size` - 1 new ones. A process can have one such model.

        device       "auto", or the kind of device that the library chooses: GPUs if there are any, one for each process
        timeout_s    the longest that a process waits for the others within a pass
        adapters     folders of LoRA adapters by their names; `with_adapter` takes the names
        batch_invariant  as `HuggingFaceModel` takes it
        environment  of the new processes; None: this process's
        on_loss      receives the reason, once, in any thread, where the group has lost a process. Calls of the model
                     fail after its return, so it must not wait for them

        Raises ModelUnavailable where the model or an adapter cannot be loaded or split, and GroupLost where a process
        ends meanwhile.
        """
        require_divisible(path, size, device)
        group = Group(size, on_loss)
        try:
            model = group.load(
                path, dtype, timeout_s, environment, adapters=adapters or {}, batch_invariant=batch_invariant
            )
            return cls(group, model)
        except BaseException:
            group.close()
            raise

    @property
    def followers(self) -> tuple[Follower, ...]:
        """The other processes of the group."""
        return self._group.followers

    @property
    def ranks_alive(self) -> int:
        """The number of living processes of the group, this one included."""
        return 1 + sum(follower.alive for follower in self.followers)

    def with_adapter(self, adapter: str) -> TensorParallelModel:
        """This model as an adapter changes it, or without any (""). Sessions of all of them share steps."""
        view = copy.copy(self)
        view._adapter, view._model = adapter, self._model.with_adapter(adapter)
        return view

    def close(self) -> None:
        """End the other processes."""
        self._group.close()

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[GroupSession, Tensor]:
        number = next(self._numbers)
        with self._group.repeated("prefill", self._adapter, number, list(prompt_ids)):
            inner, log_probs = self._model.prefill(prompt_ids)
        session = GroupSession(number, inner)
        # The followers free it with the next call.
        weakref.finalize(session, self._group.gone.append, number).atexit = False
        return session, log_probs

    def step(self, feeds: Sequence[StepInput[GroupSession]]) -> list[Scores]:
        rows = [[feed.session.number, feed.parents.tolist(), feed.tokens.tolist(), feed.undo] for feed in feeds]
        with self._group.repeated("step", rows):
            return self._model.step([replace(feed, session=feed.session.session) for feed in feeds])

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int = 0) -> int:
        """The most memory that a generation will hold in this process. It is about the same in each."""
        return self._model.bytes_for(prompt_tokens, rows, max_tokens, scratch_bytes)

    def score(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], observe: ObserveScores | None = None
    ) -> ScoredSequence:
        failures: list[Exception] = []

        def observe_all(begin: int, log_probs: Tensor) -> None:
            # Where the caller's function fails, the passes go on: the other processes make them, too.
            if observe is not None and not failures:
                try:
                    observe(begin, log_probs)
                except Exception as error:
                    failures.append(error)

        with self._group.repeated("score", self._adapter, list(prompt_ids), list(tokens)):
            scored = self._model.score(prompt_ids, tokens, observe_all)
        if failures:
            raise failures[0]
        return scored


class Group:
    """The processes of a group, and the calls that they make together.

    gone  numbers of sessions that the followers may free
    """

    def __init__(self, size: int, on_loss: Callable[[str], None]) -> None:
        self._size, self._on_loss = size, on_loss
        self._folder = tempfile.TemporaryDirectory(prefix="abs-group-")
        self._threads = torch.get_num_threads()
        self._call_lock, self._loss_lock = threading.Lock(), threading.Lock()
        self._loss = ""
        self._closing = self._joined = False
        self.followers: tuple[Follower, ...] = ()
        self.gone = deque[int]()

    def load(
        self, path: str, dtype: str, timeout_s: float, environment: Mapping[str, str] | None, *,
        adapters: Mapping[str, str], batch_invariant: bool,
    ) -> HuggingFaceModel:
        """Start the followers and load the model in all processes."""
        first = GroupMember(
            path=path, dtype=dtype, adapters=adapters, batch_invariant=batch_invariant, rank=0, size=self._size,
            folder=self._folder.name, threads=max(1, self._threads // self._size), timeout_s=timeout_s,
        )
        self.followers = tuple(
            Follower(replace(first, rank=rank), environment, self._lose) for rank in range(1, self._size)
        )
        # A process that still imports or loads must not keep the others waiting in a collective, which would time out.
        self._wait_for(STARTED)
        join_group(first)
        self._joined = True
        part = load_part(first)
        self._wait_for(LOADED)
        with self.repeated(OPEN):
            model = open_part(first, part)
        self._wait_for(OPENED, *decisions(model))
        return model

    @contextlib.contextmanager
    def repeated(self, *call: object) -> Iterator[None]:
        """Send a call to the followers. The body makes it in this process. Raises GroupLost."""
        with self._call_lock:
            if self._loss:
                raise GroupLost(self._loss)
            gone = [self.gone.popleft() for _ in range(len(self.gone))]
            line = json.dumps([gone, *call]) + "\n"
            try:
                for follower in self.followers:
                    follower.send(line)
                yield
            except (PromptEmpty, ModelUnavailable):  # before the first pass or after the last one, in all processes
                raise
            except Exception as error:  # the others may have made this pass, or wait in the middle of it
                self._lose(f"a pass failed: {type(error).__name__}: {error}")
                raise GroupLost(self._loss) from error

    def close(self) -> None:
        """End the followers, and leave the group."""
        self._closing = True
        with self._call_lock:
            for follower in self.followers:
                with contextlib.suppress(OSError):
                    follower.send(json.dumps([[], CLOSE]) + "\n")
            if self._joined:
                with contextlib.suppress(RuntimeError):  # of a group whose other processes are gone
                    leave_group()
            for follower in self.followers:
                follower.end()
        torch.set_num_threads(self._threads)
        self._folder.cleanup()

    def _wait_for(self, *reply: object) -> None:
        for follower in self.followers:
            follower.wait_for(*reply)

    def _lose(self, reason: str) -> None:
        with self._loss_lock:  # a call fails only after the report, which may end this process and leave its jobs alone
            if self._loss or self._closing:
                return
            self._on_loss(reason)
            self._loss = reason
