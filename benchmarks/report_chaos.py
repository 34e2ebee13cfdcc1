"""The section of RESULTS.md about the service under kills, from results/chaos.json as tests.long.chaos wrote it."""

from __future__ import annotations

from typing import Any

NOTES = """
The service with the built-in model; some requests at a time, of four kinds of constraint. A worker, picked at random,
is killed with -9 every second, whatever it does, be it loading; once the server is. A worker that dies is forked anew
from a process that has imported everything and loaded the model.
Each request is sent once more at the end, under its key. Every answer is judged by the definitions.
"""


def chaos_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    killed, tries = run["killed"], run["attempts"]
    workers = sum(count for name, count in killed.items() if name != "server")
    loading = sum(count for name, count in killed.items() if name.endswith("(loading)"))
    by_tries = ", ".join(f"{count} by try {tried}" for tried, count in tries.items())
    told = (
        f"{run['requests']} requests in {run['took_s']:.0f} s, {workers} workers killed ({loading} of them before they "
        f"had done anything), the server {killed.get('server', 0)} time(s): {run['answered']} answered ({by_tries}), "
        f"{run['requests'] - run['answered']} lost, {run['changed']} answered otherwise when asked again, "
        f"{run['wrong']} that do not satisfy, {run['failed']} failed; jobs on the server at the end: "
        f"{', '.join(f'{count} {state}' for state, count in run['states'].items())}."
    )
    kept = "kept" if run["good"] else "missed"
    goal = f"- every request answered once, by an answer that satisfies: {kept}"
    head = f"{run['date']}; {run['machine']}; `{run['command']}`"
    return "\n\n".join(("## The service under kills", head, NOTES.strip("\n"), told, goal)) + "\n"
