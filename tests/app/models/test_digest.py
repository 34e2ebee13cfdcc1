"""The digest of a model: sha256sum lists, pins and differences."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from app.errors import ModelChanged, SettingsInvalid
from app.models import ModelSource, checked_model, digest_of, digests_of, model_files, model_sources
from app.models import digest as model_digest
from app.models.digest import LIST, list_of
from app.settings import BUILT_IN, Settings
from tests.environment import settings_in


@pytest.fixture
def model(tmp_path: Path, captions_dir: Path) -> Path:
    """A copy of the built-in model in a temporary folder."""
    folder = tmp_path / "model"
    shutil.copytree(captions_dir, folder)
    return folder


def flip_bit(path: Path, place: int = -4_321) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def source(**settings: object) -> ModelSource:
    return model_sources(Settings.of(**settings))[0]


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_lists_of_the_built_in_models_are_fresh(name: str) -> None:
    """Train the model, then record the new digests in its list."""
    assert Path(f"{BUILT_IN[name]}.sha256").read_text(encoding="ascii") == list_of(digests_of(Path(BUILT_IN[name])))


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_altered_built_in_model_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    assert checked_model(source(model=name)) == BUILT_IN[name]
    model = tmp_path / "model"
    shutil.copytree(BUILT_IN[name], model)
    shutil.copy(f"{BUILT_IN[name]}.sha256", tmp_path / "model.sha256")
    monkeypatch.setattr(model_digest, "BUILT_IN", {name: str(model)})
    assert checked_model(source(model=str(model))) == str(model)
    flip_bit(model / "model.safetensors")
    (model / "generation_config.json").unlink()
    with pytest.raises(ModelChanged, match=r"model: generation_config.json is missing, model.safetensors differs$"):
        checked_model(source(model=str(model / ".." / model.name)))


def test_the_list_is_as_sha256sum_writes_it(model: Path) -> None:
    (model / "additional_chat_templates").mkdir()
    (model / "additional_chat_templates/tool_use.jinja").write_text("a", encoding="utf-8")
    names = [path.relative_to(model).as_posix() for path in model_files(model)]
    assert "additional_chat_templates/tool_use.jinja" in names
    sums = subprocess.run(["sha256sum", *names], cwd=model, capture_output=True, text=True, check=True).stdout
    assert sums == list_of(digests_of(model))
    assert digest_of(digests_of(model)) == hashlib.sha256(sums.encode()).hexdigest()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "generation_config.json"])
def test_a_model_is_served_only_with_its_pinned_digest(model: Path, name: str) -> None:
    pinned = source(model=str(model), model_sha256=digest_of(digests_of(model)))
    (model / "README.md").write_text("what is not read is not looked at")
    assert checked_model(pinned) == str(model)
    meant = list_of(digests_of(model))
    flip_bit(model / name, 40)
    with pytest.raises(ModelChanged, match=f"ABS_MODEL_SHA256: .* not {pinned.sha256[:12]}"):
        checked_model(pinned)
    (model / LIST).write_text(meant)
    with pytest.raises(ModelChanged, match=f"ABS_MODEL_SHA256: {name} differs$"):
        checked_model(pinned)
    (model / LIST).write_text(meant.replace("a", "b"))  # a list with another digest is ignored
    with pytest.raises(ModelChanged, match="SHA-256 is "):
        checked_model(pinned)
    assert checked_model(source(model=str(model))) == str(model)  # of which nothing is known


def test_extra_or_missing_weight_files_are_named(model: Path) -> None:
    pinned = source(model=str(model), model_sha256=digest_of(digests_of(model)))
    (model / LIST).write_text(list_of(digests_of(model)))
    (model / "model-2.safetensors").write_bytes(b"more")
    with pytest.raises(ModelChanged, match=r"model-2\.safetensors is not in the list$"):
        checked_model(pinned)
    (model / "model-2.safetensors").unlink()
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelChanged, match=r"model\.safetensors is missing$"):
        checked_model(pinned)


def test_the_digest_covers_the_weights_that_are_loaded(model: Path) -> None:
    (model / "pytorch_model.bin").write_bytes(b"never read")
    assert "pytorch_model.bin" not in digests_of(model)
    (model / "model.safetensors").unlink()
    assert "pytorch_model.bin" in digests_of(model)


def test_a_digest_is_64_digits() -> None:
    assert settings_in({"ABS_MODEL_SHA256": "0" * 64}).inference.model_sha256 == ("0" * 64,)
    for wrong_digest in ("0" * 63, "G" * 64, "sha256:" + "0" * 64, ",".join(["0" * 64] * 2)):
        with pytest.raises(SettingsInvalid, match="ABS_MODEL_SHA256"):
            settings_in({"ABS_MODEL_SHA256": wrong_digest})
