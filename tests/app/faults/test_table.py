"""Every fault that the service handles, and the tests that cause it.

The tests of this folder run against the service's processes on a real server, over HTTP; generations are
scripted there, but for test_chaos.py, so that a test knows when one is in the middle. Where a fault is shown
elsewhere too, or only there, that is named; `less` says what of it is caused inside one process, smaller than it would
be in the world, or not at all. With ABS_TESTS_FULL=1 (make test-long) they have full length and number.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.app.conftest import functions_of

WORKERS, API, SERVER = "app/faults/test_workers.py", "app/faults/test_api.py", "app/faults/test_redis.py"
UP, CHAOS, KEYS = "app/local/test_up.py", "app/faults/test_chaos.py", "app/faults/test_keys.py"
LINES, SERVICE_LINES = "app/broker/test_redis_connections.py", "app/faults/test_connections.py"
MODEL, CLOCKS, GROUPS = "app/faults/test_model.py", "app/faults/test_clocks.py", "app/faults/test_groups.py"
# What these do, they do to the service's own processes.
PROCESSES = (WORKERS, API, SERVER, SERVICE_LINES, KEYS, UP, CHAOS, MODEL, CLOCKS, GROUPS)


@dataclass(frozen=True)
class Coverage:
    """The tests of a fault, and the parts that they omit."""

    tests: tuple[tuple[str, str], ...]
    less: str = ""


FAULTS = {
    "an inference worker is killed in the middle of a generation": Coverage((
        (WORKERS, "test_a_stream_continues_on_another_worker_after_a_kill"),
        (CHAOS, "test_workers_and_the_server_are_killed_under_requests"),
    )),
    "a process that shares a worker's model is killed or stopped": Coverage((
        (GROUPS, "test_a_killed_member_ends_its_group_and_loses_no_job"),
        (GROUPS, "test_groups_are_killed_under_requests"),
        ("decoding/model/test_process_groups.py", "test_a_stopped_process_ends_its_group_in_time"),
    )),
    "a compile worker is killed": Coverage((
        (WORKERS, "test_a_compile_is_retried_when_its_worker_is_killed"),
        (CHAOS, "test_workers_and_the_server_are_killed_under_requests"),
    )),
    "a constraint exhausts its sandbox": Coverage(
        (
            (WORKERS, "test_a_bomb_ends_its_sandbox_and_not_its_worker"),
            (WORKERS, "test_a_hanging_or_memoryless_sandbox_meets_its_limit"),
            ("app/worker/test_bombs.py", ""), ("app/worker/test_sandbox.py", ""),
        ),
        "a compile worker of its own is given all bombs in full, one in short; the others are given to the compiler's "
        "process, or to a service with its workers inside",
    ),
    "a job kills each worker that takes it": Coverage(((WORKERS, "test_a_job_that_kills_three_workers_is_failed"),)),
    "a worker is stopped for long and wakes up": Coverage(
        (
            (WORKERS, "test_a_resumed_worker_cannot_change_a_reassigned_job"),
            ("app/broker/test_redis_faults.py", "test_a_resumed_worker_cannot_publish_for_its_lost_job"),
        ),
        "in short for some seconds, past a lease of 3 s; in full for a minute, past one of 30 s",
    ),
    "a worker gets SIGTERM": Coverage(((WORKERS, "test_a_stopping_worker_finishes_its_running_jobs"),)),
    "an API is killed": Coverage(((API, "test_a_stream_resumes_at_another_api_after_a_kill"),)),
    "an API gets SIGTERM under load": Coverage((
        (API, "test_a_stopping_api_finishes_requests_and_hands_over_streams"),
    )),
    "a caller goes away": Coverage(((API, "test_a_disconnect_cancels_the_callers_job"),)),
    "a job is called off while it waits, runs, and is over": Coverage((
        (API, "test_waiting_running_and_ended_jobs_can_be_cancelled"),
    )),
    "the server is killed and comes back": Coverage((
        (SERVER, "test_streams_and_jobs_survive_a_killed_server"),
        (CHAOS, "test_workers_and_the_server_are_killed_under_requests"),
        (UP, "test_a_killed_instance_leaves_no_process_and_loses_nothing"),
    )),
    "the server is away for long": Coverage(
        (
            (SERVER, "test_an_absent_server_returns_503_and_loses_no_job"),
            ("app/broker/test_redis_faults.py", "test_workers_keep_running_jobs_while_the_server_is_away"),
        ),
        "in short for 4 s, twice as long as callers wait there; in full for a minute",
    ),
    "the server is full": Coverage((
        (SERVER, "test_a_full_server_evicts_caches_and_keeps_accepted_jobs"),
        ("app/broker/test_redis_faults.py", "test_a_full_server_refuses_new_jobs_and_loses_none"),
    )),
    "the server is too old, keeps nothing, or throws jobs away": Coverage(
        (
            (SERVER, "test_a_server_that_may_lose_jobs_is_refused_at_startup"),
            (SERVER, "test_a_server_that_is_too_old_is_refused_at_startup"),
            (UP, "test_an_old_server_on_the_path_is_skipped"),
            ("app/redis/test_server_checks.py", "test_an_old_server_is_refused"),
        ),
        "a real old server, 6.2.5, can be had for Python 3.11 on Linux (x86-64) alone; elsewhere "
        "the present server is started with a minimum version above its own",
    ),
    "the server's log is cut off": Coverage(((SERVER, "test_a_truncated_append_only_file_loses_no_request"),)),
    "the line to the server breaks": Coverage((
        (SERVICE_LINES, "test_each_request_is_answered_once_over_an_unreliable_connection"),
        (LINES, "test_an_unreliable_connection_loses_no_job_event_or_slot"),
    )),
    "the line to the server falls silent": Coverage((
        (SERVICE_LINES, "test_a_stream_continues_when_all_connections_stall"),
        (LINES, "test_silent_connections_are_replaced"),
        (LINES, "test_silent_connections_are_not_tried_one_after_another"),
        (LINES, "test_missed_notifications_are_found_by_looking"),
    )),
    "a worker cannot make out what it is delivered": Coverage(
        ((LINES, "test_a_job_that_one_worker_cannot_take_goes_to_another"),), "both workers are in the test's process",
    ),
    "the store holds what is spoilt, forged or another's": Coverage((
        (SERVER, "test_values_of_the_store_are_never_trusted"), ("compiler/test_codec.py", ""),
    )),
    "many callers have one cold constraint": Coverage(
        ((API, "test_many_callers_of_one_cold_constraint_compile_it_once"),), "in short 150, in full 500",
    ),
    "nothing satisfies a constraint": Coverage(
        ((API, "test_an_unsatisfiable_constraint_is_cached"),),
        "the quickest of twenty answers is under 20 ms, not every one: the machine may be busy",
    ),
    "a budget is too small": Coverage(((API, "test_a_too_small_budget_is_refused_with_min_tokens"),)),
    "one request comes many times at once": Coverage(((API, "test_concurrent_requests_with_one_key_share_one_job"),)),
    "the queue is full": Coverage(((API, "test_a_full_queue_returns_429_with_retry_after"),)),
    "a client sends or reads slowly": Coverage(
        (
            (API, "test_slow_clients_are_cut_off_without_delaying_others"),
            ("app/test_http_server.py", "test_a_slow_header_times_out_without_delaying_others"),
            ("app/test_http_server.py", "test_a_slow_body_times_out"),
            ("app/test_http_server.py", "test_a_client_that_does_not_read_is_disconnected"),
        ),
        "limits of 2 s, not of 10 and 30 s, in `abs serve`; and of about a second around routes of the tests; headers "
        "are limited by our proxy alone",
    ),
    "a clock steps": Coverage(
        (
            (CLOCKS, "test_a_clock_step_moves_no_lease_or_deadline"),
            (CLOCKS, "test_waiting_jobs_run_once_and_in_time"),
            (CLOCKS, "test_a_clock_step_does_not_hide_a_dead_workers_job"),
            (CLOCKS, "test_a_worker_an_hour_ahead_runs_nothing"),
            (CLOCKS, "test_a_clock_leap_repeats_no_job"),
            ("app/broker/test_redis_clock.py", ""),
        ),
        "the time that processes read, by a library before the system's, which the tests have for Linux "
        "(x86-64) alone",
    ),
    "the disk is full": Coverage(
        ((SERVICE_LINES, "test_a_full_disk_refuses_new_jobs_and_loses_none"),),
        "where the system allows no mount, the server may only make no file longer",
    ),
    "two of `abs up` want one folder": Coverage(((UP, "test_a_second_instance_on_one_folder_is_refused"),)),
    "`abs up` is killed": Coverage(((UP, "test_a_killed_instance_leaves_no_process_and_loses_nothing"),)),
    "a model is missing, or not what it should be": Coverage((
        (MODEL, "test_a_worker_with_altered_weights_refuses_to_serve"),
        (UP, "test_a_worker_that_cannot_start_is_named_with_its_reason"),
        ("app/api/test_ready.py", "test_readiness_reports_missing_weights"),
        ("app/models/test_digest.py", ""),
    )),
    "a worker gets SIGTERM while its model loads": Coverage((
        (MODEL, "test_a_loading_worker_stops_at_once_on_a_signal"),
        (MODEL, "test_a_loading_service_stops_at_once_on_a_signal"),
    )),
    "a worker is stuck": Coverage(
        (
            (MODEL, "test_a_stalled_or_failing_model_is_reported_until_it_recovers"),
            ("app/api/test_ready.py", "test_readiness_reports_a_stalled_model_and_its_recovery"),
            ("app/api/test_ready.py", "test_readiness_reports_stopped_processes_and_their_recovery"),
        ),
        "of a worker process that stands still as a whole, a compile worker's, an API inside the test's process tells",
    ),
    "the memory of the model's device runs out": Coverage(
        (
            (MODEL, "test_an_oversized_batch_is_split_and_the_worker_survives"),
            ("decoding/engine/test_out_of_memory.py", ""), ("decoding/model/test_out_of_memory.py", ""),
        ),
        "it is said to run out, by the same error and in the middle of a pass: no GPU was at hand to be filled up",
    ),
    "a pass of the model fails": Coverage((
        (MODEL, "test_a_stalled_or_failing_model_is_reported_until_it_recovers"),
        ("decoding/engine/test_engine.py", "test_a_failed_pass_fails_its_requests_and_the_engine_continues"),
    )),
    "a key is wrong, expired, or another's": Coverage((
        (KEYS, "test_key_errors_do_not_reveal_jobs_of_other_owners"),
        ("app/service/test_job_client.py", "test_jobs_of_others_take_the_steps_of_unknown_jobs"),
        ("app/auth/test_keys.py", "test_key_lookup_takes_the_same_steps_for_unknown_keys"),
    )),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caused_by_a_test_that_exists(fault: str) -> None:
    for file, test in FAULTS[fault].tests:
        assert not test or test in functions_of(file), f"{file} has no {test}"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_without_a_process_test_names_its_gap(fault: str) -> None:
    assert FAULTS[fault].less or any(file in PROCESSES for file, _ in FAULTS[fault].tests)


def test_every_test_of_faults_is_in_the_table() -> None:
    in_table = {entry for job_status in FAULTS.values() for entry in job_status.tests}
    for file in (WORKERS, API, SERVER, SERVICE_LINES, KEYS, MODEL, CLOCKS, GROUPS):
        unlisted = {test for test in functions_of(file) if test.startswith("test_") and (file, test) not in in_table}
        assert not unlisted, unlisted
