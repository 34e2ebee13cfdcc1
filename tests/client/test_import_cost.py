"""What it costs to import the client, and what comes along."""

from __future__ import annotations

import pytest

from tests.app.test_import_cost import TRIES, measured

CPU_S_MAX = 0.5


def test_importing_the_client_is_fast_and_loads_no_service() -> None:
    spent = []
    for _ in range(TRIES):
        cpu_s, modules = measured("import abs_client")
        assert not modules & {"app", "compiler", "decoding", "torch", "numpy", "pydantic", "fastapi"}
        spent.append(cpu_s)
        if cpu_s < CPU_S_MAX:
            return
    pytest.fail(f"importing abs_client took {min(spent):.2f} s of processor time at least")
