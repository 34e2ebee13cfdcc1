"""Workers and Redis of `abs up` are killed during requests.

The long form is `python -m tests.long.chaos --supervised`.
"""

from __future__ import annotations

from tests.long.chaos import Chaos
from tests.servers.restarting_service import supervised_service


def test_killed_processes_restart_and_every_request_is_answered_once() -> None:
    with supervised_service({"compile": 1, "generate": 1}) as service:
        result = Chaos(service, requests=12, kills_max=3).run()
    assert result.good(), result.report()
