"""What this process and its children find in their environment. The settings in it are read by `settings`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from app.settings import PREFIX


def let_idle_threads_sleep() -> None:
    """Make idle threads of PyTorch sleep, not spin. It works only before PyTorch is first imported.

    On two busy cores a spinning thread keeps the one it waits for off the core: a step of 15 ms was seen to take 1 s.
    Asleep they cost a few per cent at rest. A deployment that sets OMP_WAIT_POLICY itself is left alone.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def environment_with(values: Mapping[str, str], without: tuple[str, ...] = ()) -> dict[str, str]:
    """This process's environment with some variables set and some removed."""
    return {name: text for name, text in os.environ.items() if name not in without} | dict(values)


def group_environment() -> dict[str, str]:
    """The environment of processes that share a model. It has none of our settings.

    They connect over the loopback interface, this process included, unless GLOO_SOCKET_IFNAME names another.
    """
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}


def child_environment() -> dict[str, str]:
    """The environment of the processes that compile.

    It has the paths of programs and libraries, and none of our settings. Libraries of linear algebra stay
    single-threaded, since only a process of one thread can be forked.
    """
    inherited = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return inherited | dict.fromkeys(threads, "1")
