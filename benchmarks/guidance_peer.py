"""Guidance on the built-in model, in an environment of its own: it needs another release of transformers than ours.

    .cache/guidance/bin/python benchmarks/guidance_peer.py MODEL_FOLDER      (started by benchmarks.decode_peers)

Imports nothing of ours. Reads one JSON object a line, {"prompt", "pattern", "max_tokens"}, and answers with {"text"}.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")  # what a library prints is no answer
    os.dup2(2, 1)
    from guidance import gen, models
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = sys.argv[1]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    guided = models.Transformers(model, tokenizer, echo=False)
    for line in sys.stdin:
        asked = json.loads(line)
        wanted = gen("text", regex=asked["pattern"], max_tokens=asked["max_tokens"], temperature=0)
        text = (guided + asked["prompt"] + wanted)["text"]
        print(json.dumps({"text": text}), file=answers, flush=True)


if __name__ == "__main__":
    main()
