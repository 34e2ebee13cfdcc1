"""MONA as the LTLf engine of a deployment.

The compile process runs it as a child. The paper uses MONA, too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from app.errors import JobFailed
from app.messages import CompileJob, CompileJobResult
from app.models import open_model_files
from app.settings import Settings
from app.worker.handlers.compile import CompileHandler
from tests.app.worker.fake_context import FakeContext
from tests.references.mona_oracle import mona_binary
from tests.servers.processes import children

FORMULAS = ("F(coffee & X(F cat))", "G(a -> WX b) & (a U dot)", "F(pet & X eos)")


def compiled(compiler: CompileHandler, formula: str) -> CompileJobResult:
    return compiler.compile(CompileJob("0" * 64, {"ltlf": formula}, time.time() + 60), FakeContext())


def test_mona_gives_native_automata_and_ends_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(mona_binary()).parent), os.environ["PATH"]]))
    vocabulary = open_model_files(Settings().inference.model).vocabulary
    native = CompileHandler(Settings(), vocabulary)
    mona = CompileHandler(Settings.of(ltlf_engine="mona", compile_s_max=3.0), vocabulary)
    for formula in FORMULAS:
        native_result, mona_result = compiled(native, formula), compiled(mona, formula)
        sizes = ("states", "letters", "token_states", "token_classes", "min_tokens")
        assert [getattr(native_result, size) for size in sizes] == [getattr(mona_result, size) for size in sizes]
    with pytest.raises(JobFailed) as caught:
        compiled(mona, f"F(a & {'X ' * 24}b)")
    assert caught.value.error == "LimitExceeded"
    assert compiled(mona, FORMULAS[0]).states == compiled(native, FORMULAS[0]).states
    server = mona.sandbox.pid
    native.sandbox.close()
    mona.sandbox.close()
    assert not children(server) if Path(f"/proc/{server}").exists() else True


def test_a_missing_engine_is_an_operator_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    compiler = CompileHandler(Settings.of(ltlf_engine="mona"), open_model_files(Settings().inference.model).vocabulary)
    with pytest.raises(JobFailed) as caught:
        compiled(compiler, FORMULAS[0])
    compiler.sandbox.close()
    assert caught.value.error == "EngineFailure" and "mona" in str(caught.value).lower()
