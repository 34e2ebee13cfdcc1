#!/usr/bin/env bash
# What a byte-level tokenizer decodes for an added token depends on its characters and on the normalizer.
#
# Guess: an added token is stored and decoded as it was written, since it is matched as a whole and needs no bytes.
# Seen (tokenizers 0.23.3, Python 3.11): the decoder ByteLevel reads an added token as letters of its byte alphabet if
# all of its characters are in it, and as text otherwise. A token `cafe` + U+0301 comes out as it was written; `caf` +
# U+00E9, the same word composed, does not, because U+00E9 stands for the byte E9. With the normalizer NFC and
# "normalized": true the first token is stored as the second one, so id_to_token and decode both change, though the
# file is the same but for the normalizer.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "tokenizers==0.23.3"
"$folder/venv/bin/python" - <<'PYTHON'
import json

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

ALPHABET = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def tokenizer(content, normalizer):
    """A BPE of the bytes, with one added token."""
    added = {"id": 256, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "special": False}
    return Tokenizer.from_str(json.dumps({
        "version": "1.0", "added_tokens": [{**added, "normalized": True}], "normalizer": normalizer,
        "pre_tokenizer": LEVEL, "decoder": LEVEL,
        "model": {"type": "BPE", "vocab": ALPHABET, "merges": []},
    }))


NFC = {"type": "NFC"}
SEEN = {  # content, normalizer: what is stored, and what the id decodes to
    ("cafe\u0301", None): ("cafe\u0301", "cafe\u0301"),
    ("cafe\u0301", "NFC"): ("caf\u00e9", "caf\ufffd"),
    ("caf\u00e9", None): ("caf\u00e9", "caf\ufffd"),
    ("\u65e5\u672c", "NFC"): ("\u65e5\u672c", "\u65e5\u672c"),
}
for (content, name), expected in SEEN.items():
    made = tokenizer(content, NFC if name else None)
    assert made.encode(content).ids == [256], made.encode(content).ids
    seen = made.id_to_token(256), made.decode([256])
    print(f"{content!a} under {name}: stored as {seen[0]!a}, decoded to {seen[1]!a}")
    assert seen == expected, (content, name, seen)
PYTHON
