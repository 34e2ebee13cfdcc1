"""Reads the labels of scorers, without weights and without torch. ABS_SCORERS names the scorers."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import SettingsInvalid
from app.models.files import context_length, first_id, named_folders
from app.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerFiles:
    """The tokenizer and configuration of a scorer, whose tokens are the labels.

    labels          the tokens that are not special, by id
    label_ids       the ids of the labels
    begin_id        the id that begins a sequence: `bos_token_id` of the configuration, or `eos_token_id` without one
    end_id          the id that ends a sequence
    context_tokens  the longest sequence with its beginning, None if the configuration has none
    """

    name: str
    folder: Path
    labels: tuple[str, ...]
    label_ids: tuple[int, ...]
    begin_id: int
    end_id: int
    context_tokens: int | None


def open_scorers(settings: Settings) -> Mapping[str, ScorerFiles]:
    """The scorers of the settings by name. Raises SettingsInvalid for other text, or a folder that is no scorer's."""
    folders = named_folders(settings.inference.scorers, "ABS_SCORERS")
    return {name: _open_scorer(name, folder) for name, folder in folders.items()}


@functools.lru_cache(maxsize=32)  # API and worker of one process share them
def _open_scorer(name: str, folder: Path) -> ScorerFiles:
    try:
        config = _read_object(folder / "config.json")
        tokenizer = _read_object(folder / "tokenizer.json")
        ids = {str(label): int(number) for label, number in tokenizer["model"]["vocab"].items()}
        added = tokenizer.get("added_tokens") or []
        ids |= {str(token["content"]): int(token["id"]) for token in added}
        special = {int(token["id"]) for token in added if token.get("special")}
        unknown = tokenizer["model"].get("unk_token")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        expected = "a config.json, and a tokenizer.json whose model has a vocab of labels"
        raise SettingsInvalid(f"ABS_SCORERS: {folder} must have {expected} ({type(error).__name__})") from error
    end = first_id(config.get("eos_token_id"))
    if end is None:
        raise SettingsInvalid(f"ABS_SCORERS: config.json of {folder} has no eos_token_id, so no sequence would end")
    begin = first_id(config.get("bos_token_id"))
    outside = {*special, begin, end, ids.get(str(unknown))}
    numbers = sorted((number, label) for label, number in ids.items() if number not in outside)
    if not numbers:
        raise SettingsInvalid(f"ABS_SCORERS: tokenizer.json of {folder} has no token that is not special")
    return ScorerFiles(
        name=name, folder=folder, labels=tuple(label for _, label in numbers),
        label_ids=tuple(number for number, _ in numbers), begin_id=end if begin is None else begin, end_id=end,
        context_tokens=context_length(config),
    )


def _read_object(file: Path) -> dict[str, Any]:
    value = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{file.name} is not a JSON object")
    return value
