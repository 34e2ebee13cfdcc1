"""Every fault that the service is built for, the tests that cause it, and what these leave out.

Those of this folder's test_faults_*.py run against the service's processes on a real server, over HTTP; generations are
scripted there, but for test_faults_chaos.py, so that a test knows when one is in the middle. Where a fault is shown
elsewhere too, or only there, that is named; `less` says what of it is caused inside one process, smaller than it would
be in the world, or not at all. With ABS_TESTS_FULL=1 (make chaos) they last as long, and are as many, as was promised.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
WORKERS, API, SERVER = "app/test_faults_workers.py", "app/test_faults_api.py", "app/test_faults_server.py"
UP, CHAOS, KEYS = "app/test_up.py", "app/test_faults_chaos.py", "app/test_faults_keys.py"
UP_CHAOS = "app/test_up_chaos.py"
LINES, SERVICE_LINES = "app/test_redis_lines.py", "app/test_faults_lines.py"
MODEL, CLOCKS = "app/test_faults_model.py", "app/test_faults_clocks.py"
# What these do, they do to the service's own processes.
PROCESSES = (WORKERS, API, SERVER, SERVICE_LINES, KEYS, UP, CHAOS, MODEL, CLOCKS)


@dataclass(frozen=True)
class Shown:
    """The tests of a fault, by file and name (all of a file: no name), and what they leave out."""

    tests: tuple[tuple[str, str], ...]
    less: str = ""


FAULTS = {
    "an inference worker is killed in the middle of a generation": Shown((
        (WORKERS, "test_a_stream_goes_on_with_another_worker_when_its_own_is_killed"),
        (CHAOS, "test_workers_and_the_server_are_killed_under_requests"),
    )),
    "a compile worker is killed": Shown((
        (WORKERS, "test_a_constraint_whose_compile_worker_is_killed_is_compiled_by_the_next"),
        (CHAOS, "test_workers_and_the_server_are_killed_under_requests"),
    )),
    "a constraint exhausts its sandbox": Shown(
        (
            (WORKERS, "test_a_bomb_ends_its_sandbox_and_not_its_worker"),
            (WORKERS, "test_a_sandbox_that_hangs_or_has_no_memory_is_named_so"),
            ("app/test_bombs.py", ""), ("app/test_compile_process.py", ""),
        ),
        "a compile worker of its own is given all bombs in full, one in short; the others are given to the compiler's "
        "process, or to a service with its workers inside",
    ),
    "a job kills whoever takes it": Shown((
        (WORKERS, "test_a_job_that_kills_its_workers_is_given_up_after_three_and_the_queue_goes_on"),
    )),
    "a worker is stopped for long and wakes up": Shown(
        (
            (WORKERS, "test_a_worker_that_was_stopped_and_wakes_up_has_nothing_more_to_say"),
            ("app/test_redis_faults.py", "test_a_stopped_worker_that_goes_on_says_nothing_more_about_its_job"),
        ),
        "in short for some seconds, past a lease of 3 s; in full for a minute, past one of 30 s",
    ),
    "a worker is told to stop": Shown((
        (WORKERS, "test_a_worker_that_is_told_to_stop_ends_what_it_runs_and_hands_nothing_over"),
    )),
    "an API is killed": Shown(((API, "test_a_stream_whose_api_is_killed_is_read_on_from_another"),)),
    "an API is told to stop under load": Shown((
        (API, "test_an_api_that_is_told_to_stop_ends_what_it_has_begun_and_hands_its_streams_over"),
    )),
    "a caller goes away": Shown(((API, "test_a_caller_who_goes_away_takes_his_job_with_him"),)),
    "a job is called off while it waits, runs, and is over": Shown((
        (API, "test_a_job_is_called_off_while_it_waits_while_it_runs_and_after_it_ended"),
    )),
    "the server is killed and comes back": Shown((
        (SERVER, "test_a_server_that_is_killed_and_comes_back_is_a_pause_to_a_stream_and_to_those_who_wait"),
        (CHAOS, "test_workers_and_the_server_are_killed_under_requests"),
        (UP_CHAOS, "test_what_is_killed_under_requests_is_brought_back_and_every_request_is_answered_once"),
    )),
    "the server is away for long": Shown(
        (
            (SERVER, "test_while_the_server_is_away_callers_are_told_and_what_was_promised_is_kept"),
            (
                "app/test_redis_faults.py",
                "test_while_the_server_is_away_callers_are_told_and_workers_keep_what_they_run",
            ),
        ),
        "in short for 4 s, twice as long as callers wait there; in full for a minute",
    ),
    "the server is full": Shown((
        (SERVER, "test_a_server_that_is_full_drops_its_caches_and_then_takes_nothing_new_but_keeps_what_it_took"),
        ("app/test_redis_faults.py", "test_a_full_server_takes_no_new_jobs_and_loses_none_that_it_took"),
    )),
    "the server is too old, keeps nothing, or throws jobs away": Shown(
        (
            (SERVER, "test_a_server_that_would_lose_jobs_is_refused_at_the_start"),
            (SERVER, "test_a_server_that_is_too_old_is_refused_at_the_start"),
            (UP, "test_an_old_server_on_path_is_passed_over"),
            ("app/test_redis_server.py", "test_an_old_server_is_refused"),
        ),
        "a real old server, 6.2.5, can be had for Python 3.11 on Linux (x86-64) alone; elsewhere more than is there is "
        "asked of a new one",
    ),
    "the server's log is cut off": Shown((
        (SERVER, "test_a_log_that_a_crash_cut_off_is_read_as_far_as_it_goes"),
    )),
    "the line to the server breaks": Shown((
        (SERVICE_LINES, "test_over_a_line_that_breaks_and_falls_silent_each_request_is_answered_once"),
        (LINES, "test_a_line_that_breaks_over_and_over_loses_no_job_no_event_and_no_slot"),
    )),
    "the line to the server falls silent": Shown((
        (SERVICE_LINES, "test_a_stream_goes_on_when_all_connections_fall_silent"),
        (LINES, "test_connections_that_fall_silent_are_given_up_for_others"),
        (LINES, "test_where_one_connection_fell_silent_none_of_the_others_is_waited_for"),
        (LINES, "test_what_nobody_was_told_is_found_by_one_look_for_all_who_wait"),
    )),
    "a worker cannot make out what it is delivered": Shown((
        (SERVICE_LINES, "test_a_worker_that_cannot_take_a_job_leaves_it_to_others"),
        (LINES, "test_a_worker_that_cannot_take_a_job_says_so_and_leaves_it_to_another"),
    )),
    "the store holds what is spoilt, forged or another's": Shown((
        (SERVER, "test_what_the_store_holds_is_never_trusted"), ("compiler/test_codec.py", ""),
    )),
    "many callers have one cold constraint": Shown(
        ((API, "test_many_callers_of_one_cold_constraint_compile_it_once"),), "in short 150, in full 500",
    ),
    "nothing satisfies a constraint": Shown(
        ((API, "test_a_constraint_that_nothing_satisfies_is_known_the_second_time"),),
        "the quickest of twenty answers is under 20 ms, not every one: the machine may be busy",
    ),
    "a budget is too small": Shown((
        (API, "test_a_budget_that_is_too_small_is_refused_with_the_least_that_would_do"),
    )),
    "one request comes many times at once": Shown((
        (API, "test_requests_with_one_key_that_come_at_once_at_two_apis_are_one_job"),
    )),
    "the queue is full": Shown(((API, "test_a_full_queue_says_when_to_come_back_before_it_says_anything_else"),)),
    "a client sends or reads slowly": Shown(
        (
            (API, "test_slow_clients_are_cut_off_and_nobody_else_waits"),
            ("app/test_serving.py", "test_a_header_that_trickles_in_is_cut_off_and_nobody_else_waits"),
            ("app/test_serving.py", "test_a_body_that_trickles_in_is_cut_off"),
            ("app/test_serving.py", "test_a_reader_who_does_not_read_is_let_go"),
        ),
        "limits of 2 s, not of 10 and 30 s, in `abs serve`; and of about a second around routes of the tests",
    ),
    "a clock steps": Shown(
        (
            (CLOCKS, "test_no_lease_ends_and_no_deadline_moves"),
            (CLOCKS, "test_what_waits_is_run_once_and_is_not_late"),
            (CLOCKS, "test_the_job_of_a_dead_worker_is_found_though_the_server_s_clock_steps"),
            (
                CLOCKS,
                "test_what_is_kept_for_less_than_the_server_s_clock_leaps_is_gone_and_nothing_is_done_twice",
            ),
            ("app/test_redis_clock.py", ""),
        ),
        "what processes are told that the time is, by a library before the system's, which the tests have for Linux "
        "(x86-64) alone",
    ),
    "the disk is full": Shown(
        ((SERVICE_LINES, "test_a_full_disk_refuses_what_is_new_and_spoils_nothing"),),
        "where the system lets nobody mount a disk of his own, the server may only make no file longer",
    ),
    "two of `abs up` want one folder": Shown((
        (UP, "test_a_second_one_on_the_same_folder_is_refused_and_told_why"),
    )),
    "`abs up`, or its supervisor, is killed": Shown((
        (UP, "test_a_kill_leaves_no_process_behind_and_what_was_compiled_is_there_next_time"),
        (UP, "test_without_its_supervisor_nothing_goes_on"),
    )),
    "a model is missing, or not what it should be": Shown((
        (MODEL, "test_a_worker_whose_model_has_one_wrong_byte_serves_nothing_and_says_which_file"),
        (UP, "test_a_worker_that_cannot_start_is_named_with_its_reason"),
        ("app/test_ready.py", "test_weights_that_are_missing_are_told_and_the_process_lives"),
        ("app/test_model_digest.py", ""),
    )),
    "a worker is told to stop while its model loads": Shown((
        (MODEL, "test_a_worker_that_is_told_to_stop_while_its_model_loads_ends_at_once"),
        (MODEL, "test_a_service_that_is_told_to_stop_while_its_model_loads_ends_at_once"),
    )),
    "a worker is stuck": Shown(
        (
            (MODEL, "test_a_model_that_stands_still_or_fails_is_told_and_so_is_its_return"),
            ("app/test_ready.py", "test_a_model_that_takes_no_step_any_more_is_told_and_so_is_its_return"),
            (
                "app/test_ready.py",
                "test_a_worker_process_and_a_server_that_stand_still_are_told_and_so_is_their_return",
            ),
        ),
        "of a worker process that stands still as a whole, a compile worker's, an API inside the test's process tells",
    ),
    "the memory of the model's device runs out": Shown(
        (
            (MODEL, "test_a_batch_that_is_too_large_is_parted_and_the_worker_lives"),
            ("decoding/test_engine_memory.py", ""), ("decoding/test_models_memory.py", ""),
        ),
        "it is said to run out, by the same error and in the middle of a pass: no GPU was at hand to be filled up",
    ),
    "a pass of the model fails": Shown((
        (MODEL, "test_a_model_that_stands_still_or_fails_is_told_and_so_is_its_return"),
        ("decoding/test_engine.py", "test_a_failed_pass_fails_its_requests_and_the_engine_continues"),
    )),
    "a key is wrong, expired, or another's": Shown((
        (KEYS, "test_a_wrong_key_another_s_job_and_an_expired_key_are_told_apart_only_as_they_may_be"),
        (KEYS, "test_how_long_a_refusal_takes_tells_nothing"),
        ("app/test_access_keys.py", "test_a_key_is_looked_for_in_the_same_way_whether_there_is_one_or_not"),
    )),
}


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caused_by_a_test_that_exists(fault: str) -> None:
    for file, test in FAULTS[fault].tests:
        assert not test or test in functions_of(file), f"{file} has no {test}"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_no_process_of_the_service_meets_says_so(fault: str) -> None:
    assert FAULTS[fault].less or any(file in PROCESSES for file, _ in FAULTS[fault].tests)


def test_every_test_of_faults_is_in_the_table() -> None:
    listed = {entry for shown in FAULTS.values() for entry in shown.tests}
    for file in (WORKERS, API, SERVER, SERVICE_LINES, KEYS, MODEL, CLOCKS):
        missing = {test for test in functions_of(file) if test.startswith("test_") and (file, test) not in listed}
        assert not missing, missing
