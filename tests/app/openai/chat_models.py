"""The built-in model with template and tokens of another family."""

from __future__ import annotations

import functools
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

from app.formats import CallFormat, ChatFormat
from app.models import ModelFiles, open_model_files
from compiler.vocab import Vocabulary
from tests.servers.small_model import small_model

TESTS = Path(__file__).resolve().parents[2]
TEMPLATES: dict[str, dict[str, Any]] = {
    family["name"]: family
    for family in tomllib.loads((TESTS / "cases/chat_templates.toml").read_text(encoding="utf-8"))["template"]
}

MARKERS = {  # the tokens of a family in a text
    name: re.compile("|".join(map(re.escape, [*family["special"], *family["added"]])))
    for name, family in TEMPLATES.items()
}  # fmt: skip


@functools.cache
def small_family(name: str, template: str | None = None) -> ModelFiles:
    """A model with bytes and the markers of a family as tokens.

    template  None: our own small template of the family
    """
    family = TEMPLATES[name]
    pieces = [*(bytes([value]) for value in range(256)), None, b'{"', b'": ', b"</", b"ee", b"\n<"]
    names = {name: len(pieces) + number for number, name in enumerate([*family["special"], *family["added"]])}
    tokens = (*pieces, *(None if name in family["special"] else name.encode() for name in names))
    ends = {"bos_token": "<bos>", "eos_token": "<eos>"} if template else {}
    return ModelFiles(Path(), Vocabulary(tokens, (256,), names), None, None, template or family["text"], ends)


def reply_of(family: ChatFormat, text: str) -> str:
    """A reply with the texts around it."""
    return family.reply + text + family.reply_end


def call_begin(calls: CallFormat, name: str) -> str:
    """The text before the arguments of a first call."""
    return calls.begin + calls.head.replace("{name}", name).replace("{index}", "0") + calls.opening


def without_ids(text: str) -> str:
    """A prompt without Mistral's ids, which answers do not have. Numbers of calls become 0."""
    text = re.sub(r'(functions\.\w+:|"tool_call_id": ")\d+', r"\g<1>0", text)
    return re.sub(r', "id": "\w{9}"|\[CALL_ID\]\w{9}|\w{9}\[TOOL_CONTENT\]', "", text)


def family_files(folder: Path, name: str, context_tokens: int | None = None) -> ModelFiles:
    """The files of a small model of a family, in a folder. Its markers take the ids of the rarest pieces.

    context_tokens  None: the built-in model's own
    """
    family, source = TEMPLATES[name], Path(small_model())
    for file in ("config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors"):
        shutil.copy(source / file, folder / file)
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    model, count = tokenizer["model"], len(family["special"]) + len(family["added"])
    kept = len(model["vocab"]) - count
    model["vocab"] = {piece: number for piece, number in model["vocab"].items() if number < kept}
    model["merges"] = model["merges"][: len(model["merges"]) - count]
    add_markers(tokenizer, family["special"], family["added"])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    if context_tokens is not None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["max_position_embeddings"] = context_tokens
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(family["text"], encoding="utf-8")
    return open_model_files(str(folder))


def add_markers(tokenizer: dict[str, Any], special: list[str], added: list[str]) -> None:
    """Adds tokens behind the last id of a tokenizer."""
    first = len(tokenizer["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for number, text in enumerate([*special, *added]):
        tokenizer["added_tokens"].append({"id": first + number, "content": text, "special": text in special, **flags})
