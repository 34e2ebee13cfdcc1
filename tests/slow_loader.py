"""The service with a model that takes for ever to load, for tests: python -m tests.slow_loader worker|serve"""

from __future__ import annotations

import sys
import time

from app import wiring
from app.cli.worker_process import run_worker
from app.main import main
from app.settings import Settings, read_settings
from app.worker.handlers.base import Handler

LOADS_S = 600.0


def open_slowly(settings: Settings) -> Handler:
    """Loads, and loads."""
    time.sleep(LOADS_S)
    raise RuntimeError("no test waits for this")


if __name__ == "__main__":
    wiring.HANDLERS["generate"] = "tests.slow_loader:open_slowly"
    if sys.argv[1] == "worker":
        run_worker("generate", read_settings())
    else:
        main()
