"""Reads a model's tokenizer and configuration, without its weights and without torch."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import SettingsInvalid
from compiler.errors import VocabularyError
from compiler.vocab import Vocabulary, vocabulary_from_tokenizer_json

TEMPLATE_FILE, TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
SPECIAL_MAP = "special_tokens_map.json"
TEMPLATE_FOLDER = "additional_chat_templates"
FILES = (  # patterns of names within a model's folder
    "config.json", "generation_config.json", "tokenizer.json", TOKENIZER_CONFIG, SPECIAL_MAP, TEMPLATE_FILE,
    f"{TEMPLATE_FOLDER}/*.jinja",
)  # fmt: skip
# The context length, as the configurations of different architectures name it.
CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_NAMED_FOLDER = re.compile("([A-Za-z0-9_.-]{1,64})=(.+)")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
# What the tokenizer classes of causal models set where a configuration sets nothing, as in transformers 5.24; in the
# order of _SPECIAL.
_CLASS_DEFAULTS: dict[str, tuple[str | None, ...]] = {
    "LlamaTokenizer": ("<s>", "</s>", "<unk>"),
    "CodeLlamaTokenizer": ("<s>", "</s>", "<unk>"),
    "GemmaTokenizer": ("<bos>", "<eos>", "<unk>", "<pad>", None, None, "<mask>"),
    "Qwen2Tokenizer": (None, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"),
    "GPT2Tokenizer": ("<|endoftext|>", "<|endoftext|>", "<|endoftext|>"),
    "GPTNeoXTokenizer": ("<|endoftext|>", "<|endoftext|>", "<|endoftext|>", "<|padding|>"),
    "CohereTokenizer": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "<PAD>", "<SEP>", "<CLS>", "<MASK_TOKEN>"),
}


@dataclass(frozen=True, eq=False)
class ModelFiles:
    """The tokenizer and configuration of a model.

    folder          the folder of the files
    vocabulary      the bytes of each token id
    context_tokens  context length, None if the configuration has none
    bos_id          the id that starts a text, None if there is none
    chat_template   the Jinja template that makes a prompt of messages, None if there is none
    special_tokens  variables of the template: "bos_token", "eos_token" and so on
    tool_template   the template of requests with tools, None if `chat_template` is that of all
    """

    folder: Path
    vocabulary: Vocabulary
    context_tokens: int | None
    bos_id: int | None
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    tool_template: str | None = None

    def template(self, with_tools: bool) -> str | None:
        """The chat template of a request. None if there is none."""
        return self.tool_template if with_tools and self.tool_template is not None else self.chat_template

    @property
    def revision(self) -> str:
        """The commit of a model of the Hugging Face hub. It is "local" for other folders."""
        return self.folder.name if self.folder.parent.name == "snapshots" else "local"

    @property
    def tokenizer_file(self) -> Path:
        return self.folder / "tokenizer.json"

    @functools.cached_property
    def markers(self) -> tuple[str, ...]:
        """The tokens that structure a prompt.

        These are special tokens, and added ones whose text begins like markup. Other added tokens are words, or white
        space: Gemma has them for runs of spaces.
        """
        tokens = self.vocabulary.tokens
        return tuple(
            name for name, number in self.vocabulary.names.items()
            if name and ((token := tokens[number]) is None or not _begins_a_word(token.decode(errors="replace")))
        )  # fmt: skip


@functools.lru_cache(maxsize=8)  # API and workers of one process share the vocabulary
def open_model_files(model: str) -> ModelFiles:
    """The files of a model, by folder or by name.

    Raises SettingsInvalid if there is no such model or its tokenizer cannot be read.
    """
    folder = Path(model) if Path(model).is_dir() else download(model, FILES)
    config = _read_json(folder / "config.json")
    text_config = config.get("text_config")
    if isinstance(text_config, dict):  # multimodal models nest the language model's configuration
        config = {**config, **text_config}
    # The generation configuration lists all end tokens; the other one may have only the first.
    generation = _read_json(folder / "generation_config.json") if (folder / "generation_config.json").exists() else {}
    eos_ids = _ids(generation.get("eos_token_id")) or _ids(config.get("eos_token_id"))
    if not eos_ids:
        raise SettingsInvalid("ABS_MODEL: the model's configuration has no eos_token_id, so no text would end")
    try:
        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        vocabulary = vocabulary_from_tokenizer_json(text, first_id(config.get("vocab_size")), eos_ids)
    except OSError as error:
        raise SettingsInvalid(f"ABS_MODEL: the model has no readable tokenizer.json ({error.strerror})") from error
    except VocabularyError as error:
        raise SettingsInvalid(f"ABS_MODEL: {error}") from error
    bos_id = first_id({**config, **generation}.get("bos_token_id"))
    tokenizer = _read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    special = _template_variables(folder, tokenizer)
    templates = _chat_templates(folder, tokenizer.get("chat_template"))
    return ModelFiles(
        folder, vocabulary, context_length(config), bos_id, templates.get("default"), special, templates.get("tool_use")
    )


def _chat_templates(folder: Path, configured: object) -> dict[str, str]:
    """The chat templates by their names, as in transformers. Files go before the tokenizer's configuration."""
    files = {path.stem: path for path in folder.glob(f"{TEMPLATE_FOLDER}/*.jinja")}
    if (folder / TEMPLATE_FILE).exists():
        files = {"default": folder / TEMPLATE_FILE} | files
    if files:
        return {name: _template_text(path) for name, path in files.items()}
    named = configured if isinstance(configured, dict) else {"default": configured}
    if isinstance(configured, list):
        named = {entry.get("name"): entry.get("template") for entry in configured if isinstance(entry, dict)}
    return {str(name): template for name, template in named.items() if isinstance(template, str)}


def _template_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"ABS_MODEL: {path.name} of the model cannot be read") from error


def _begins_a_word(text: str) -> bool:
    return text[0].isalnum() or text[0].isspace()


def _template_variables(folder: Path, configured: Mapping[str, object]) -> dict[str, str]:
    """The special tokens by their names in chat templates, as in transformers."""
    tokens = dict(configured)
    extra = tokens.pop("extra_special_tokens", None)
    tokens |= extra if isinstance(extra, dict) else {}
    # A file of its own has them in older models, whose configuration does not list the added tokens.
    if "added_tokens_decoder" not in configured and (folder / SPECIAL_MAP).exists():
        tokens |= _read_json(folder / SPECIAL_MAP)
    name = str(configured.get("tokenizer_class")).removesuffix("Fast")
    tokens = dict(zip(_SPECIAL, _CLASS_DEFAULTS.get(name, ()), strict=False)) | tokens
    texts = {name: _token_text(value) for name, value in tokens.items() if name.endswith("_token")}
    return {name: text for name, text in texts.items() if text is not None}


def _token_text(value: object) -> str | None:
    """The text of a special token. Its value is a string or an object with properties."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def download(model: str, files: tuple[str, ...]) -> Path:
    """Downloads a model of the Hugging Face hub and returns its folder. Only files of these patterns are fetched,
    and none that is in the local cache.

    Raises SettingsInvalid if the model cannot be downloaded.
    """
    # Imported here, because a model in a folder does not need the hub.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=list(files)))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = f"is neither a folder nor a model that can be downloaded ({type(error).__name__})"
        raise SettingsInvalid(f"ABS_MODEL: {model!r} {reason}") from error


def _read_json(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"ABS_MODEL: {path.name} of the model cannot be read ({type(error).__name__})") from error
    if not isinstance(data, dict):
        raise SettingsInvalid(f"ABS_MODEL: {path.name} of the model is not a JSON object")
    return data


def _ids(value: object) -> tuple[int, ...]:
    """The ids of a configuration value. The value is an id, a list of ids, or neither."""
    values = value if isinstance(value, list) else [value]
    return tuple(sorted({item for item in values if isinstance(item, int)}))


def context_length(config: Mapping[str, object]) -> int | None:
    """The context length of a configuration. None if it has none."""
    lengths = (first_id(config.get(name)) for name in CONTEXT_NAMES)
    return next((length for length in lengths if length is not None and length > 0), None)


def first_id(value: object) -> int | None:
    """The first whole number of a configuration value."""
    values = value if isinstance(value, list) else [value]
    return next((item for item in values if isinstance(item, int)), None)


def named_folders(pairs: Sequence[str], variable: str) -> dict[str, Path]:
    """The folders of a setting of `name=folder` pairs, by name. Raises SettingsInvalid for other text."""
    matches = [_NAMED_FOLDER.fullmatch(pair) for pair in pairs]
    folders = {match[1]: Path(match[2]).expanduser() for match in matches if match}
    if len(folders) < len(pairs):
        raise SettingsInvalid(f"{variable}: should be name=folder, separated by commas, with names that all differ")
    return folders
