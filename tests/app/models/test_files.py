from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.errors import SettingsInvalid
from app.models import open_model_files
from app.models.files import CONTEXT_NAMES, SPECIAL_MAP, TOKENIZER_CONFIG
from decoding.model import loading


def model(folder: Path, captions: Path, config: dict[str, object], generation: dict[str, object] | None = None) -> str:
    """A folder with the built-in tokenizer and a configuration."""
    (folder / "tokenizer.json").write_text((captions / "tokenizer.json").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return str(folder)


def test_the_built_in_model_is_read(captions_dir: Path) -> None:
    files = open_model_files(str(captions_dir))
    assert (files.vocabulary.size, files.vocabulary.eos_ids, files.context_tokens, files.bos_id) == (4096, (0,), 256, 0)


def test_the_generation_config_overrides_eos_ids(tmp_path: Path, captions_dir: Path) -> None:
    path = model(tmp_path, captions_dir, {"vocab_size": 4100, "eos_token_id": 0}, {"eos_token_id": [7, 5]})
    files = open_model_files(path)
    assert (files.vocabulary.eos_ids, files.vocabulary.size, files.bos_id) == ((5, 7), 4100, None)


def test_the_text_config_of_a_multimodal_model_is_read(tmp_path: Path, captions_dir: Path) -> None:
    inner = {"vocab_size": 4096, "eos_token_id": 3, "max_position_embeddings": 99}
    files = open_model_files(model(tmp_path, captions_dir, {"text_config": inner}))
    assert (files.vocabulary.eos_ids, files.context_tokens) == ((3,), 99)


@pytest.mark.parametrize(
    ("lengths", "context"),
    [({"n_positions": 64}, 64), ({"max_position_embeddings": 9, "n_positions": 64}, 9), ({"seq_length": 7}, 7),
     ({"max_position_embeddings": -1}, None), ({"max_position_embeddings": None, "max_seq_len": 5}, 5)],
)  # fmt: skip
def test_the_context_length_is_found_under_every_known_name(
    tmp_path: Path, captions_dir: Path, lengths: dict[str, int], context: int | None
) -> None:
    assert CONTEXT_NAMES == loading.CONTEXT_NAMES
    config = {"vocab_size": 4096, "eos_token_id": 0, **lengths}
    assert open_model_files(model(tmp_path, captions_dir, config)).context_tokens == context


@pytest.mark.parametrize(
    "config", [{"vocab_size": 4096}, {"eos_token_id": None}, {"eos_token_id": 9_999, "vocab_size": 4096}]
)
def test_a_model_whose_texts_cannot_end_is_refused(
    tmp_path: Path, captions_dir: Path, config: dict[str, object]
) -> None:
    with pytest.raises(SettingsInvalid, match=r"ABS_MODEL.*(?i:eos)"):
        open_model_files(model(tmp_path, captions_dir, config))


@pytest.mark.parametrize("missing_file", ["config.json", "tokenizer.json"])
def test_a_folder_without_its_files_is_refused(tmp_path: Path, captions_dir: Path, missing_file: str) -> None:
    path = model(tmp_path, captions_dir, {"eos_token_id": 0})
    (tmp_path / missing_file).unlink()
    with pytest.raises(SettingsInvalid, match=missing_file):
        open_model_files(path)


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path, captions_dir: Path) -> None:
    path = model(tmp_path, captions_dir, {"eos_token_id": 0})
    word_pieces = '{"model": {"vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}}'
    (tmp_path / "tokenizer.json").write_text(word_pieces, encoding="utf-8")
    with pytest.raises(SettingsInvalid, match="ABS_MODEL"):
        open_model_files(path)


END = {"__type": "AddedToken", "content": "<e>", "lstrip": False}
CHATTY = {"bos_token": "<b>", "eos_token": END, "pad_token": None, "image_token": "<i>"}
LISTED = {**CHATTY, "added_tokens_decoder": {}}


@pytest.mark.parametrize(
    ("configured", "in_a_map", "variables"),
    [
        (CHATTY, None, {"bos_token": "<b>", "eos_token": "<e>", "image_token": "<i>"}),
        (CHATTY, {"bos_token": "<B>"}, {"bos_token": "<B>", "eos_token": "<e>", "image_token": "<i>"}),
        (LISTED, {"bos_token": "<B>"}, {"bos_token": "<b>", "eos_token": "<e>", "image_token": "<i>"}),
        ({"tokenizer_class": "LlamaTokenizerFast"}, {"eos_token": None}, {"bos_token": "<s>", "unk_token": "<unk>"}),
        ({"extra_special_tokens": {"boi_token": "<i>"}}, None, {"boi_token": "<i>"}),
        ({"extra_special_tokens": ["<i>"], "sep_token": 3}, None, {}),
    ],
)
def test_template_variables_are_those_of_transformers(
    configured: dict[str, object], in_a_map: dict[str, object] | None, variables: dict[str, str], tmp_path: Path,
    captions_dir: Path,
) -> None:
    path = model(tmp_path, captions_dir, {"vocab_size": 4096, "eos_token_id": 0})
    (tmp_path / TOKENIZER_CONFIG).write_text(json.dumps(configured), encoding="utf-8")
    if in_a_map is not None:
        (tmp_path / SPECIAL_MAP).write_text(json.dumps(in_a_map), encoding="utf-8")
    assert open_model_files(path).special_tokens == variables


def test_added_tokens_of_white_space_are_no_markers(tmp_path: Path, captions_dir: Path) -> None:
    path = model(tmp_path, captions_dir, {"eos_token_id": 0})
    data = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    flags = {"special": False, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    for number, content in enumerate(("▁▁", "<call>", "word"), len(data["model"]["vocab"])):
        data["added_tokens"].append({**flags, "id": number, "content": content})
    data["decoder"] = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    assert open_model_files(path).markers == ("<eos>", "<call>")
