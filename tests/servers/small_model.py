"""The built-in model with its first layer alone, for services of tests.

More than half of what requests to a service cost in tests is the model, and few tests depend on what its texts mean.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import tempfile
from pathlib import Path

from safetensors.numpy import load_file, save_file

from app.settings import BUILT_IN_MODEL

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "tests"
LAYERS = "model.layers."
WEIGHTS, CONFIG = "model.safetensors", "config.json"


@functools.cache
def small_model() -> str:
    """The folder of the model, made once. It is named as the built-in one."""
    source = Path(BUILT_IN_MODEL)
    digest = hashlib.sha256(Path(f"{source}.sha256").read_bytes() + Path(__file__).read_bytes()).hexdigest()
    folder = FOLDER / digest[:16]
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER, ignore_cleanup_errors=True) as new:
            _write(source, Path(new) / folder.name / source.name)
            with contextlib.suppress(OSError):  # another process was first
                (Path(new) / folder.name).rename(folder)
    return str(folder / source.name)


def _write(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.name == WEIGHTS:
            weights = load_file(file)
            kept = {name for name in weights if not name.startswith(LAYERS) or name.startswith(f"{LAYERS}0.")}
            save_file({name: weights[name] for name in kept}, folder / WEIGHTS, {"format": "pt"})
        elif file.name == CONFIG:
            config = json.loads(file.read_text(encoding="utf-8")) | {"num_hidden_layers": 1}
            (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
        else:
            (folder / file.name).write_bytes(file.read_bytes())
