"""MONA as the LTLf engine of a deployment.

The compile process runs it as a child. The paper uses MONA, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.errors import JobFailed
from app.messages import CompileJob, CompileJobResult
from app.models import open_model_files
from app.settings import Settings
from app.worker.handlers import compile as compile_handler
from app.worker.handlers.compile import CompileHandler
from tests.app.worker.fake_context import FakeContext
from tests.references.mona_oracle import mona_binary
from tests.servers.processes import children

ROOT = Path(__file__).resolve().parents[3]
FORMULAS = ("F(coffee & X(F cat))", "G(a -> WX b) & (a U dot)", "F(pet & X eos)")


def compiled(compiler: CompileHandler, formula: str) -> CompileJobResult:
    (vocabulary,) = compiler.vocabularies
    job = CompileJob("0" * 64, {"ltlf": formula}, time.time() + 60, vocabulary=vocabulary)
    return compiler.compile(job, FakeContext())


def test_mona_gives_native_automata_and_ends_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_handler, "TARGET", "tests.servers.quick_sandbox:open_job")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(mona_binary()).parent), os.environ["PATH"]]))
    vocabulary = open_model_files(Settings().inference.model[0]).vocabulary
    native = CompileHandler(Settings(), vocabulary)
    mona = CompileHandler(Settings.of(ltlf_engine="mona", compile_s_max=2.0), vocabulary)
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


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker", "compile"), ("up", "--port", "0")])
@pytest.mark.parametrize(
    ("variable", "value", "advice"),
    [("LTLF_ENGINE", "mona", "apt install mona"), ("REGEX_ENGINE", "fado", "pip install --no-deps FAdo")],
)
@pytest.mark.sample(3)
def test_an_absent_engine_stops_a_process_at_its_start(
    command: tuple[str, ...], variable: str, value: str, advice: str, tmp_path: Path
) -> None:
    own = {
        "PATH": "/nowhere", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), f"ABS_{variable}": value,
        "ABS_BROKER": "redis://127.0.0.1:1/0", "ABS_STORE": "redis://127.0.0.1:1/0",
    }  # fmt: skip
    without_fado = "import sys; sys.modules['FAdo'] = None; from app.main import main; main()"
    run = [sys.executable, "-c", without_fado, *command]
    done = subprocess.run(run, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    printed = " ".join(done.stderr.split())
    assert f"ABS_{variable} is {value}" in printed and advice in printed
