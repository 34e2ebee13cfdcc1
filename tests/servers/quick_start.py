"""Shortens the start of services that tests start.

It takes one second of processor time instead of four. The change applies to a process that imports this module, and to
processes forked from it. Other processes start as in production.

model     A built-in model or the small one (small_model.py) is loaded, tried and measured once. Each service gets a
          copy. Hash models with equal parameters are measured once.
sandbox   It is forked, and compiles no tables of JSON formats in advance (quick_sandbox.py).
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref

from app.models import checked_model, model_sources
from app.settings import BUILT_IN, Settings
from app.worker.handlers import compile as compile_handler
from app.worker.handlers import engine, preparation
from app.worker.handlers.preparation import ModelWithPrior
from app.worker.sandbox import client
from decoding.model import HuggingFaceModel, LanguageModel
from tests.fake_models import HashModel
from tests.servers.quick_sandbox import start_server
from tests.servers.small_model import small_model

MODELS = (small_model(), *(checked_model(source) for source in model_sources(Settings.of(model=tuple(BUILT_IN)))))
_measure = ModelWithPrior.measure
_copies = weakref.WeakKeyDictionary[LanguageModel, ModelWithPrior]()  # with what was measured of the original


@functools.cache
def load_once(folder: str, device: str, dtype: str) -> ModelWithPrior:
    """Loads and measures a model. No service uses it, only copies."""
    return _measure("", HuggingFaceModel.load(folder, device=device, dtype=dtype))


class CopiedModel(HuggingFaceModel):
    """Loads a built-in model as a copy."""

    @classmethod
    def load(
        cls, path_or_name: str, *, device: str = "auto", dtype: str = "auto", batch_invariant: bool = True
    ) -> HuggingFaceModel:
        if path_or_name not in MODELS or not batch_invariant:
            return HuggingFaceModel.load(path_or_name, device=device, dtype=dtype, batch_invariant=batch_invariant)
        measured = load_once(path_or_name, device, dtype)
        model = copy.deepcopy(measured.model)
        assert isinstance(model, HuggingFaceModel)
        _copies[model] = measured
        return model


_measured: dict[tuple[object, ...], ModelWithPrior] = {}  # by the parameters of a hash model


def measure(name: str, model: LanguageModel) -> ModelWithPrior:
    """Measures a model, unless an equal one was measured."""
    if isinstance(model, HashModel):
        if model.parameters not in _measured:
            _measured[model.parameters] = _measure(name, model)
        return dataclasses.replace(_measured[model.parameters], name=name, model=model)
    if name or model not in _copies:
        return _measure(name, model)
    return dataclasses.replace(_copies[model], model=model)


for module, replaced, replacement in (
    (engine, "HuggingFaceModel", CopiedModel), (preparation.ModelWithPrior, "measure", staticmethod(measure)),
    (compile_handler, "TARGET", "tests.servers.quick_sandbox:open_job"), (client, "start_server", start_server),
):  # fmt: skip
    setattr(module, replaced, replacement)
