"""One constrained decoder on the built-in model in this process: its time, and how many of its answers satisfy.

    python -m benchmarks.decode_peers NAME      (started by benchmarks.decode)

Every decoder gets the same patterns, the same prompt and the same budgets: a short one, two tokens over the least that
the pattern needs, and a long one. The others are driven through transformers' `generate`, greedily, or by their own
matcher where that is how they are used. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor
from transformers.utils import logging

from app.model_files import open_model_files
from app.settings import BUILT_IN_MODEL
from benchmarks.our_decoder import OurDecoder
from compiler.pipeline import compile_spec
from compiler.spec import RegexSpec
from decoding.model import HuggingFaceModel
from decoding.options import SearchOptions
from decoding.search import generate

PROMPT = "sentence:"
PATTERNS = (
    r"[A-Z][a-z]+( [a-z]+){3,9}\.",
    r"A [a-z ]*dog[a-z ]*park[a-z ]*\.",
    r"(The|A) (man|woman|girl|boy) [a-z ]+ and [a-z ]+\.",
    r"[A-Z][a-z ]{20,60}\.",
    r"[a-z ]*snow[a-z ]*hill[a-z ]*sled[a-z ]*\.",
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}: [a-z ]{10,40}\.",
    r'\{"who": "[a-z ]{3,20}", "where": "[a-z ]{3,20}"\}',
    r"([a-z]+, ){2,5}and [a-z]+",
)
SHORT_SLACK, LONG = 2, 64  # tokens over the least; tokens
BEAMS = 16
GUIDANCE_PYTHON = Path(__file__).resolve().parents[1] / ".cache" / "guidance" / "bin" / "python"
Decode = Callable[[str, int], str]  # pattern and budget in tokens, EOS among them, to the text


def ours(beams: int) -> Decode:
    files = open_model_files(BUILT_IN_MODEL)
    tokenizer = Tokenizer.from_file(str(files.tokenizer_file))
    model = HuggingFaceModel.load(BUILT_IN_MODEL, device="cpu")
    decoder = OurDecoder(model, files.vocabulary, tokenizer)
    prompt = tokenizer.encode(PROMPT).ids

    def decode(pattern: str, budget: int) -> str:
        constraint = decoder.constraint(compile_spec(RegexSpec(pattern), files.vocabulary).tokens)
        answer = generate(model, prompt, constraint, SearchOptions(budget, beams))[0]
        return b"".join(files.vocabulary.tokens[token] or b"" for token in answer.tokens).decode()

    return decode


def _through_transformers(processor_for: Callable[[Any, Any, str], list[LogitsProcessor]]) -> Decode:
    """Greedy `generate` under a logits processor made for each pattern."""
    tokenizer = AutoTokenizer.from_pretrained(BUILT_IN_MODEL)
    model = AutoModelForCausalLM.from_pretrained(BUILT_IN_MODEL, dtype=torch.float32).eval()
    ids = torch.tensor([tokenizer(PROMPT).input_ids])

    @torch.inference_mode()
    def decode(pattern: str, budget: int) -> str:
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=budget,
            do_sample=False,
            logits_processor=processor_for(tokenizer, model, pattern),
        )
        return str(tokenizer.decode(found[0, ids.shape[1] :], skip_special_tokens=True))

    return decode


def xgrammar() -> Decode:
    import xgrammar as xgr

    def processor(tokenizer: Any, model: Any, pattern: str) -> list[LogitsProcessor]:
        info = xgr.TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=model.config.vocab_size, stop_token_ids=[tokenizer.eos_token_id]
        )
        return [xgr.contrib.hf.LogitsProcessor(xgr.GrammarCompiler(info).compile_regex(pattern))]

    return _through_transformers(processor)


def outlines_core() -> Decode:
    """The engine under Outlines, by a processor that masks with its guide."""
    from outlines_core import Guide, Index, Vocabulary

    class Masked(LogitsProcessor):
        def __init__(self, guide: Any, eos: int) -> None:
            self._guide, self._eos, self._begun = guide, eos, False

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            if self._begun and not self._guide.is_finished():
                self._guide.advance(int(input_ids[0, -1]), return_tokens=False)
            self._begun = True
            allowed = [self._eos] if self._guide.is_finished() else self._guide.get_tokens()
            masked = torch.full_like(scores, float("-inf"))
            masked[:, allowed] = scores[:, allowed]
            return masked

    def processor(tokenizer: Any, model: Any, pattern: str) -> list[LogitsProcessor]:
        tokens: dict[str, list[int]] = {}
        for text, number in tokenizer.get_vocab().items():
            if number != tokenizer.eos_token_id:
                tokens.setdefault(tokenizer.convert_tokens_to_string([text]), []).append(number)
        guide = Guide(Index(pattern, Vocabulary(tokenizer.eos_token_id, tokens)))
        return [Masked(guide, tokenizer.eos_token_id)]

    return _through_transformers(processor)


def llguidance() -> Decode:
    """The engine under guidance, by a processor that masks with its matcher."""
    import llguidance.hf
    import llguidance.torch as masks
    from llguidance import LLMatcher

    class Masked(LogitsProcessor):
        def __init__(self, matcher: Any, vocab_size: int, eos: int) -> None:
            self._matcher, self._eos, self._begun = matcher, eos, False
            self._mask = masks.allocate_token_bitmask(1, vocab_size)

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            if self._begun and not self._matcher.is_stopped():
                self._matcher.consume_token(int(input_ids[0, -1]))
            self._begun = True
            if self._matcher.is_stopped():
                ended = torch.full_like(scores, float("-inf"))
                ended[:, self._eos] = 0.0
                return ended
            masks.fill_next_token_bitmask(self._matcher, self._mask, 0)
            masked = scores.clone()
            masks.apply_token_bitmask_inplace(masked, self._mask)
            return masked

    def processor(tokenizer: Any, model: Any, pattern: str) -> list[LogitsProcessor]:
        matcher = LLMatcher(llguidance.hf.from_tokenizer(tokenizer), LLMatcher.grammar_from_regex(pattern))
        return [Masked(matcher, model.config.vocab_size, tokenizer.eos_token_id)]

    return _through_transformers(processor)


def outlines() -> Decode:
    from outlines import Generator, from_transformers
    from outlines.types import Regex

    tokenizer: Any = AutoTokenizer.from_pretrained(BUILT_IN_MODEL)
    model = from_transformers(AutoModelForCausalLM.from_pretrained(BUILT_IN_MODEL, dtype=torch.float32), tokenizer)

    def decode(pattern: str, budget: int) -> str:
        generator = Generator(model, Regex(pattern), backend="outlines_core")
        return str(generator(PROMPT, max_new_tokens=budget, do_sample=False))

    return decode


def guidance() -> Decode:
    """Guidance itself, which needs another release of transformers: in a process with an environment of its own."""
    if not GUIDANCE_PYTHON.exists():
        raise SystemExit(f"guidance is not installed in {GUIDANCE_PYTHON.parents[1]}: make reference")
    command = [str(GUIDANCE_PYTHON), str(Path(__file__).with_name("guidance_peer.py")), BUILT_IN_MODEL]
    threads = str(torch.get_num_threads())
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PATH": os.defpath, "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "PASSIVE"},
    )  # fmt: skip
    atexit.register(process.kill)

    def decode(pattern: str, budget: int) -> str:
        assert process.stdin and process.stdout
        asked = {"prompt": PROMPT, "pattern": pattern, "max_tokens": budget - 1}  # its budget does not count the end
        print(json.dumps(asked), file=process.stdin, flush=True)
        return str(json.loads(process.stdout.readline())["text"])

    return decode


PEERS: dict[str, Callable[[], Decode]] = {
    f"ours, {BEAMS} beams": lambda: ours(BEAMS),
    "ours, 1 beam": lambda: ours(1),
    "XGrammar": xgrammar,
    "outlines-core": outlines_core,
    "llguidance": llguidance,
    "Outlines": outlines,
    "guidance": guidance,
}


def satisfies(pattern: str, text: str) -> bool:
    """Whether a text matches in full; one space before it is forgiven, which some tokenizers cannot but write."""
    return re.fullmatch(pattern, text.removeprefix(" ")) is not None


def _figures(decode: Decode, budgets: dict[str, int]) -> dict[str, Any]:
    texts = {}
    started = time.perf_counter()
    for pattern, budget in budgets.items():
        texts[pattern] = decode(pattern, budget)
    seconds = time.perf_counter() - started
    satisfied = sum(satisfies(pattern, text) for pattern, text in texts.items())
    return {"seconds": seconds, "asked": len(texts), "satisfied": satisfied, "texts": list(texts.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    least = {pattern: compile_spec(RegexSpec(pattern), vocabulary).tokens.min_tokens for pattern in PATTERNS}
    decode = PEERS[args.name]()
    decode(PATTERNS[0], LONG)
    short = _figures(decode, {pattern: tokens + SHORT_SLACK for pattern, tokens in least.items()})
    long = _figures(decode, dict.fromkeys(PATTERNS, LONG))
    print(json.dumps({"texts": len(PATTERNS), "short": short, "long": long}))


if __name__ == "__main__":
    main()
