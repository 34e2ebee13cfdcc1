"""RESULTS.md's sections about load, killed workers and a new user's browser."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from benchmarks.report.layout import goal_list, picture, section, table
from benchmarks.report.plots import draw_scaling, draw_tails

CACHED_MS, OVERHEAD_MS, QUEUE_MS, GROWTH = 5.0, 30.0, 25.0, 1.05
TAILS = ("p50", "p90", "p99", "most")
FIRST_PAINT_MS, TOTAL_S, PAGE_BYTES = 1000.0, 300.0, 2_000_000
LOAD_NOTES = """
`abs up` with the built-in model: API, compile worker, inference worker, server, and the clients, all on this machine.
*Overhead* is a request's time less compiling, waiting in the queue for a worker and decoding: by the service's own
clock, and by the client's, which also counts the client's own work; over requests with a constraint that was compiled
before, which are all but two in a hundred. `re` checks every answer.
"""
CHAOS_NOTES = """
The service with the built-in model, with several concurrent requests of four kinds of constraint. A random worker is
killed with -9 every second, whatever it does, even while it loads; the server as often as is written below. A dead
worker is replaced by a fork of a process that has imported everything and loaded the model.
At the end each request is sent once more, under its idempotency key. Every answer is checked against the definitions.
"""
QUEUE_NOTES = """
One API process and one worker process on this machine send jobs through one server with a log on disk, without doing
any work. The API has many callers at a time; each submits a job, reads its events and its result, and the next follows.
The server runs one thread. Other programs on the machine reduce jobs/s, but hardly the processor times.
"""
SCALING_NOTES = """
One API process, one server and the workers on this machine. A worker has four generations at once, and each only waits
for some two seconds, as for a device of its own: what is lost against one worker is the service's. Jobs of a worker:
those of the workers with the fewest and the most.
"""
PUBLISHED_NOTES = """
Nothing in this table was measured here: these are figures that developers of vLLM published with their changes, on
GPUs that they mostly do not name, with models over 1,000 times as large as the built-in one. They show what continuous
batching gives on such hardware, and what constraints cost there. vLLM was not run beside this service, which would need
a GPU.
"""
PAGE_NOTES = """
From a clone to an answer in the page, on a machine that has only Python, make and git: the machine's time, and the time
for typing at the speed of people of average skill, 32.5 words a minute for copied commands and 19 for the composed
constraint (Karat et al., 1999); without reading. Most of `make demo` is fetching and unpacking PyTorch.
"""


def load_section(run: dict[str, Any]) -> str:
    """Latencies, outcomes and memory under load."""
    single, cached, burst, sustained = run["single_client"], run["cached"], run["burst"], run["sustained"]
    clients = f"{sustained['clients']} clients"
    rows = [
        ("one client: what queue and service add to decoding", single["added_ms"]),
        ("one client: the whole request", single["request_ms"]),
        (f"cached POST /compile, {cached['rate']:.0f} a second", cached["ms"]),
        (f"{sustained['clients']} requests in one instant: overhead, the service's clock", burst["service_ms"]),
        (f"{clients}: overhead, the service's clock", sustained["service_ms"]),
        (f"{clients}: overhead, the client's clock", sustained["client_ms"]),
        (f"{clients}: waiting in the queue", sustained["queue_ms"]),
        (f"{clients}: the whole request", sustained["request_ms"]),
    ]
    if sustained.get("first_step_ms"):
        rows.append((f"{clients}: the first step of a stream", sustained["first_step_ms"]))
    memory = [
        [name, f"{sizes['warm_mib']:.0f}", f"{sizes['end_mib']:.0f}", f"{sizes['ratio']:.3f}"]
        for name, sizes in sustained["memory"].items()
    ]
    return section(
        "The service under load", run, LOAD_NOTES,
        table(["milliseconds", *TAILS], ([title, *(f"{tails[name]:.1f}" for name in TAILS)] for title, tails in rows)),
        picture("load", "percentiles of the times under load", partial(draw_tails, rows, TAILS), (8, 3.2)),
        _load_outcomes(run),
        table(["MiB held by", "after warm-up", "at the end", "ratio"], memory),
        _load_goals(run),
    )  # fmt: skip


def _load_outcomes(run: dict[str, Any]) -> str:
    sustained, same_constraint = run["sustained"], run["same_constraint"]
    statuses = ", ".join(f"{count:,} of status {status}" for status, count in sorted(sustained["statuses"].items()))
    rate = sustained["answers"] / sustained.get("took_s", sustained["seconds"])
    return (
        f"{rate:.1f} answers a second from {run.get('workers', 1)} inference worker(s). "
        f"{sustained['seconds']:.0f} seconds of {sustained['clients']} clients, which start within the first "
        f"{sustained['ramp_s']:.0f}: {statuses}; {sustained['violations']} answers that violate, "
        f"{sustained['answers'] - sustained['distinct']} given twice. {same_constraint['callers']} callers of one cold "
        f"constraint: {same_constraint['compilations']:.0f} compilation, the slowest answer after "
        f"{same_constraint['slowest_s']:.2f} s."
    )


def _load_goals(run: dict[str, Any]) -> str:
    single, cached, sustained = run["single_client"], run["cached"], run["sustained"]
    growth = max(sizes["ratio"] for sizes in sustained["memory"].values())
    error_count = sum(count for status, count in sustained["statuses"].items() if str(status) not in ("200", "429"))
    return goal_list((
        (f"p99 of the overhead under load below {OVERHEAD_MS:.0f} ms", sustained["service_ms"]["p99"] < OVERHEAD_MS),
        (f"p99 of a cached /compile below {CACHED_MS:.0f} ms", cached["ms"]["p99"] < CACHED_MS),
        (f"the queue adds less than {QUEUE_MS:.0f} ms (p50)", single["added_ms"]["p50"] < QUEUE_MS),
        ("one compilation for all callers", run["same_constraint"]["compilations"] == 1),
        ("no error but 429", error_count == 0),
        (f"no process grows by more than {GROWTH - 1:.0%}", growth <= GROWTH),
        ("every answer satisfies", sustained["violations"] == 0),
    ))  # fmt: skip


def published_section(run: dict[str, Any]) -> str:
    """Throughputs that others published, each with its source."""
    head = ("source", "date", "model", "load", "method", "requests/s", "tokens/s", "ms for a token")
    body = [
        [f"[{row['source']}]({row['url']})", row["date"], row["model"], row["load"], row["method"],
         f"{row['requests_per_s']:.1f}", f"{row['tokens_per_s']:,}",
         "" if row["token_ms"] is None else f"{row['token_ms']:.1f}"]
        for row in run["rows"]
    ]  # fmt: skip
    title, read = "Published figures of vLLM (theirs)", f"Read on {run['date']}."
    return "\n\n".join((f"## {title}", read, PUBLISHED_NOTES.strip(), table(head, body))) + "\n"


def queue_section(run: dict[str, Any]) -> str:
    """The load that one server of the queue carries."""
    rows = [
        [
            str(row["events"]), f"{row['jobs_per_s']:.0f}", f"{row['events_per_s']:,.0f}", f"{row['scripts']:.1f}",
            *(f"{row[part]:.2f}" for part in ("api_ms", "worker_ms", "server_ms")),
            f"{row['server_share']:.0%}", f"{row['memory_bytes'] / 1024:.1f}",
        ]
        for row in run["rows"]
    ]  # fmt: skip
    head = [
        "events of a job", "jobs/s", "events/s", "scripts of a job", "API, ms", "worker, ms", "server, ms",
        "server's share of a core", "server's memory of a finished job, KiB",
    ]  # fmt: skip
    details = [f"{run['callers']} callers, {run['slots']} jobs at once", f"load average of {run['load']:.0f} before"]
    return section("The load of one queue server", run, QUEUE_NOTES, table(head, rows), details=details)


def scaling_section(run: dict[str, Any]) -> str:
    """Answers per second of several workers behind one queue."""
    fewest = run["rows"][0]
    alone = fewest["answers_per_s"] / fewest["workers"]
    rows = [
        [
            str(row["workers"]), str(row["callers"]), f"{row['answers_per_s']:.1f}",
            f"{row['answers_per_s'] / alone:.2f}", f"{row['request_s']['p50']:.1f}", f"{row['request_s']['p99']:.1f}",
            f"{row['least_jobs']:.0f} to {row['most_jobs']:.0f}", str(row["failed"]),
        ]
        for row in run["rows"]
    ]  # fmt: skip
    head = ["workers", "callers", "answers/s", "times one", "p50, s", "p99, s", "jobs of a worker", "failed"]
    details = [f"{run['seconds']:.0f} s a row", f"load average of {run['load']:.0f} before"]
    draw = partial(draw_scaling, run["rows"])
    plot = picture("scaling", "answers per second and times of requests, by workers", draw, (8, 3), (1, 2))
    return section("Several workers behind one queue", run, SCALING_NOTES, table(head, rows), plot, details=details)


def chaos_section(run: dict[str, Any]) -> str:
    """The outcomes of requests while tests.long.chaos kills workers."""
    kill_count, requests = run["killed"], run["requests"]
    workers = sum(count for name, count in kill_count.items() if name != "server")
    loading = sum(count for name, count in kill_count.items() if name.endswith("(loading)"))
    by_attempt = ", ".join(f"{count} by attempt {attempt}" for attempt, count in run["attempts"].items())
    states = ", ".join(f"{count} {state}" for state, count in run["states"].items())
    outcomes = (
        f"{requests} requests in {run['took_s']:.0f} s, {workers} workers killed ({loading} of them while loading), "
        f"the server {kill_count.get('server', 0)} time(s): {run['answered']} answered ({by_attempt}), "
        f"{requests - run['answered']} lost, {run['changed']} with another answer when sent again, "
        f"{run['wrong']} that do not satisfy, {run['failed']} failed; jobs on the server at the end: {states}."
    )
    goals = goal_list((("every request answered once, by an answer that satisfies", run["good"]),))
    return section("The service under kills", run, CHAOS_NOTES, outcomes, goals)


def page_section(run: dict[str, Any]) -> str:
    """The time of a new user, and of loading the page."""
    seconds, paints = run["seconds"], run["first_paint_ms"]
    typing = sum(run["typing_seconds"].values())
    total, paint = sum(seconds.values()) + typing, statistics.median(paints)
    steps = ", ".join(f"{name} {duration:.1f} s" for name, duration in seconds.items())
    steps += f"; typing {run['typed']} characters {typing:.1f} s"
    loads = (
        f"The page, loaded {len(paints)} times with an empty cache: first paint after {paint:.0f} ms in the median "
        f"({min(paints):.0f} to {max(paints):.0f}), the automaton drawn after "
        f"{statistics.median(run['drawn_ms']):.0f} ms, {run['bytes'] / 1e6:.2f} MB in all."
    )
    goals = goal_list((
        ("a new user's first answer in under five minutes", total < TOTAL_S),
        ("of which typing is the longest part", typing > max(seconds.values())),
        ("the first paint within one second on loopback", paint < FIRST_PAINT_MS),
        ("the page under 2 MB", run["bytes"] < PAGE_BYTES),
    ))  # fmt: skip
    return section(
        "A new user's first answer, and the page", run, PAGE_NOTES, f"{steps}: {total:.0f} s in all.", loads, goals
    )
