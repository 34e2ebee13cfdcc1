"""Groups of processes that share a model lose a process under requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from tests.long.chaos import Chaos
from tests.servers.cluster import API, COMPILE, FULL, cluster
from tests.servers.restarting_service import followers_of, supervised_service

pytestmark = pytest.mark.long
GROUP = ("-m", "app.main", "worker", "generate")
ENDS_S_MAX = 30.0
BODY: dict[str, Any] = {"prompt": "sentence:", "max_tokens": 40, "beams": 8, "timeout_s": 280}
CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"keywords": ["dog", "ball"]}, {"ltlf": "F(cat) & G(!the)"}, {"regex": "[A-Z][a-z]+( [a-z]+){8,12} park\\."},
)


def test_a_killed_member_ends_its_group_and_loses_no_job() -> None:
    with cluster() as running:
        running.add("api", API)
        running.add("compile", COMPILE)
        group = running.add("group", GROUP, ABS_TENSOR_PARALLEL="2")
        running.restore()
        bodies = [BODY | {"constraint": constraint} for constraint in CONSTRAINTS]
        with running.client() as http, ThreadPoolExecutor(len(bodies)) as callers:
            expected = [http.post("/generate", json=body).json()["choices"] for body in bodies]
            answers = callers.map(lambda body: http.post("/generate", json=body), bodies)
            running.busy("group")
            (follower,) = followers_of(group.pid)
            follower.kill()
            assert group.process is not None and group.process.wait(ENDS_S_MAX) == 1
            assert "the model has lost a part" in group.log()
            group.start()
            again = list(answers)
            assert [answer.status_code for answer in again] == [200] * len(bodies), again[0].text
            assert [answer.json()["choices"] for answer in again] == expected
        assert group.metric("abs_job_redelivered_total") > 0
        remaining = followers_of(group.pid)
        group.kill()
        assert remaining and not psutil.wait_procs(remaining, timeout=ENDS_S_MAX)[1], "a follower has no group"


@pytest.mark.skipif(not FULL, reason="the test above is the short form")
def test_groups_are_killed_under_requests() -> None:
    with supervised_service({"compile": 1, "generate": 2}, tensor_parallel=2) as service:
        result = Chaos(service, requests=60, kills_max=16).run()
    assert result.good(), result.report()
    assert any(name.startswith("generate") for name in result.killed), "no group was killed"
