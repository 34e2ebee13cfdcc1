"""Loads the built-in models at import. Processes forked afterwards need not load them.

Loading takes a second or two of processor time, for trial passes and measurements. Without preloading, a worker that is
killed within seconds would do little else. A model with other settings is loaded as usual.
"""

from __future__ import annotations

import torch

from app.settings import Settings
from tests.servers.quick_start import MODELS, load_once

torch.set_num_threads(1)  # a thread of PyTorch's own would be missing after a fork
_settings = Settings().inference
for _folder in MODELS:
    load_once(_folder, _settings.device, _settings.dtype)
