"""A generate worker whose model stands still or fails when told to, for tests: python -m tests.faulty_worker FOLDER

It is `abs worker generate` as it is, with its model; but while the folder holds a file "hold" its passes do not go on,
and while it holds one "fail" they fail.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.cli.worker_process import run_worker
from app.settings import read_settings
from decoding.model import HuggingFaceModel


def obey(folder: Path) -> None:
    """Have every model of this process do what the folder says."""
    step = HuggingFaceModel.step

    def told_step(model: HuggingFaceModel, feeds: Sequence[Any]) -> Any:
        if threading.current_thread().name == "engine":  # what is tried while the model is loaded goes well
            while (folder / "hold").exists():
                time.sleep(0.02)
            if (folder / "fail").exists():
                raise RuntimeError("a pass that was told to fail")
        return step(model, feeds)

    HuggingFaceModel.step = told_step  # type: ignore[method-assign]


if __name__ == "__main__":
    obey(Path(sys.argv[1]))
    run_worker("generate", read_settings())
