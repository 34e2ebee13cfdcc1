"""The section of RESULTS.md about the service under load, from results/load.json as benchmarks.load wrote it."""

from __future__ import annotations

from typing import Any

from benchmarks.report_tables import table

NOTES = """
`abs up` with the built-in model: API, compile worker, inference worker, server, and the clients, all on this machine.
*Overhead* is a request's time less compiling, waiting in the queue for a worker and decoding: by the service's own
clock, and by the client's, which also counts the client's own work; of requests whose constraint was compiled before,
two in a hundred being of the other kind. Every answer is judged by `re`.
"""
CACHED_MS, OVERHEAD_MS, QUEUE_MS, GROWTH = 5.0, 30.0, 25.0, 1.05
TAILS = ("p50", "p90", "p99", "most")


def load_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    quiet, cached, crowd, burst, siege = run["quiet"], run["cached"], run["crowd"], run["burst"], run["siege"]
    rows = [
        ["one client: what queue and service add to decoding", *_tails(quiet["added_ms"])],
        ["one client: the whole request", *_tails(quiet["whole_ms"])],
        [f"cached POST /compile, {cached['rate']:.0f} a second", *_tails(cached["ms"])],
        [f"{siege['clients']} requests in one instant: overhead, the service's clock", *_tails(burst["service_ms"])],
        [f"{siege['clients']} clients: overhead, the service's clock", *_tails(siege["service_ms"])],
        [f"{siege['clients']} clients: overhead, the client's clock", *_tails(siege["client_ms"])],
        [f"{siege['clients']} clients: waiting in the queue", *_tails(siege["queue_ms"])],
        [f"{siege['clients']} clients: the whole request", *_tails(siege["whole_ms"])],
    ]
    memory = [
        [name, f"{held['warm_mib']:.0f}", f"{held['end_mib']:.0f}", f"{held['ratio']:.3f}"]
        for name, held in siege["memory"].items()
    ]
    parts = [
        "## The service under load",
        f"{run['date']}; {run['machine']}; `{run['command']}`",
        NOTES,
        table(["milliseconds", *TAILS], rows),
        _outcomes(siege, crowd),
        table(["MiB held by", "after warm-up", "at the end", "ratio"], memory),
        _goals(quiet, cached, crowd, siege),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _tails(figures: dict[str, float]) -> list[str]:
    return [f"{figures[name]:.1f}" for name in TAILS]


def _outcomes(siege: dict[str, Any], crowd: dict[str, Any]) -> str:
    statuses = ", ".join(f"{count:,} of status {status}" for status, count in sorted(siege["statuses"].items()))
    siege_told = (
        f"{siege['seconds']:.0f} seconds of {siege['clients']} clients, who come within the first "
        f"{siege['ramp_s']:.0f}: {statuses}; {siege['violations']} answers that violate, "
        f"{siege['answers'] - siege['distinct']} given twice."
    )
    return (
        f"{siege_told} {crowd['callers']} callers of one cold constraint: {crowd['compilations']:.0f} compilation, "
        f"the slowest answer after {crowd['slowest_s']:.2f} s."
    )


def _goals(quiet: dict[str, Any], cached: dict[str, Any], crowd: dict[str, Any], siege: dict[str, Any]) -> str:
    growth = max(held["ratio"] for held in siege["memory"].values())
    others = sum(count for status, count in siege["statuses"].items() if str(status) not in ("200", "429"))
    goals = (
        (f"p99 of the overhead under load below {OVERHEAD_MS:.0f} ms", siege["service_ms"]["p99"] < OVERHEAD_MS),
        (f"p99 of a cached /compile below {CACHED_MS:.0f} ms", cached["ms"]["p99"] < CACHED_MS),
        (f"the queue adds less than {QUEUE_MS:.0f} ms (p50)", quiet["added_ms"]["p50"] < QUEUE_MS),
        ("one compilation for all callers", crowd["compilations"] == 1),
        ("no error but 429", others == 0),
        (f"no process grows by more than {GROWTH - 1:.0%}", growth <= GROWTH),
        ("every answer satisfies", siege["violations"] == 0),
    )
    return "\n".join(f"- {goal}: {'kept' if kept else 'missed'}" for goal, kept in goals)
