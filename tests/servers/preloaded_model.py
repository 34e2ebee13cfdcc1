"""Loads the built-in models at import. Processes forked afterwards need not load it.

Loading takes a second or two of processor time, for trial passes and the unigram prior. Without preloading, a worker
that is killed within seconds would do little else. A model with other settings is loaded as usual.
"""

from __future__ import annotations

import functools

import torch

from app.models import checked_model, model_sources
from app.settings import BUILT_IN, Settings
from app.worker.handlers import generate
from decoding.model import HuggingFaceModel

torch.set_num_threads(1)  # a thread of PyTorch's own would be missing after a fork
_settings = Settings.of(model=tuple(BUILT_IN))
_load = functools.cache(HuggingFaceModel.load)
_prior = functools.cache(generate.unigram_prior)
setattr(HuggingFaceModel, "load", staticmethod(_load))  # noqa: B010  # neither is a method, as types go
setattr(generate, "unigram_prior", _prior)  # noqa: B010
for _source in model_sources(_settings):
    _prior(_load(checked_model(_source), device=_settings.inference.device, dtype=_settings.inference.dtype))
