"""The reasons of workers that take no jobs, and their public texts."""

from __future__ import annotations

import pytest

from app.messages import NotReadyCode, NotReadyReason


@pytest.mark.parametrize("code", NotReadyCode)
def test_a_reason_keeps_its_code(code: NotReadyCode) -> None:
    assert NotReadyCode.of(code.reason("a: b")) is NotReadyCode.of(code.reason()) is code


@pytest.mark.parametrize(
    "reason", [NotReadyCode.FAILED.reason("'/srv/MARKER': no such file"), "MARKER of another version"]
)
def test_a_private_or_unknown_reason_is_not_public(reason: str) -> None:
    assert NotReadyReason("generate", reason).public() == "generate worker: the model cannot be loaded; see the log"
    assert "MARKER" in str(NotReadyReason("generate", reason))


def test_other_reasons_are_public() -> None:
    stalled = NotReadyReason("generate", NotReadyCode.STALLED.reason("the model takes no step for 60 s"))
    assert stalled.public() == str(stalled) == "generate worker: stuck: the model takes no step for 60 s"
    assert NotReadyReason("compile").public() == "no compile worker is alive"
