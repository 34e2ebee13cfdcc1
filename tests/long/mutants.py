"""Fuzzes the store with damaged, moved and forged values. None of them may be accepted.

    python -m tests.long.mutants --cases 20000 --seed 1

Real stored values are changed in one of the ways of `WAYS` and read as the service reads them: as the automaton of a
hash, or as a sealed message of a key. ArtefactInvalid is the only error that may be raised.
"""

from __future__ import annotations

import argparse
import collections
import functools
import hashlib
import hmac
import random
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import zstandard

from app.automaton_cache import DecodedCache, Decoder, automaton_secret
from app.messages import Failure, automaton_hash, dump, failure_key, read_signed, sign
from compiler.codec import MAGIC, RAW_BYTES_MAX, encode
from compiler.errors import ArtefactInvalid
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.spec import RegexSpec
from compiler.vocab import byte_vocabulary

SECRET, STRANGER = b"the secret of the store", b"the secret of a stranger"
VOCABULARY = byte_vocabulary()
PATTERNS = ("abc", r"\d{1,20}", "(a|b)*abb", r"[^\n]{0,40}!", r"(\w+ ){2}end", "é|ö|ü")
HEADER = struct.Struct("<8sII32s")  # as compiler.codec writes it
BOMB_BYTES = 64 * 2**20
Way = Callable[["Values", random.Random, int], tuple[str, bytes]]  # a key, and what lies there instead


class Accepted(AssertionError):
    """A value that is not ours was taken for one."""


@dataclass(frozen=True, slots=True)
class Values:
    """Real stored values by automaton hash or message key."""

    keys: tuple[str, ...]
    stored: tuple[bytes, ...]
    read: Callable[[str, bytes], object]


@functools.cache
def automata() -> Values:
    """CompiledConstraint constraints."""
    specs = [RegexSpec(pattern) for pattern in PATTERNS]
    hashes = tuple(automaton_hash(spec, VOCABULARY.fingerprint) for spec in specs)
    stored = tuple(
        encode(compile_spec(spec, VOCABULARY), automaton_secret(SECRET, name))
        for spec, name in zip(specs, hashes, strict=True)
    )
    return Values(hashes, stored, Decoder(SECRET, VOCABULARY.fingerprint, DecodedCache(0)))


@functools.cache
def messages() -> Values:
    """Failures that are remembered."""
    keys = tuple(failure_key(hashlib.sha256(b"%d" % number).hexdigest(), {}, Limits()) for number in range(6))
    stored = tuple(sign(SECRET, key, dump(Failure("SpecUnsatisfiable", key, {}))) for key in keys)

    def read(key: str, value: bytes) -> object:
        message = read_signed(SECRET, key, value)
        if message is None:
            raise ArtefactInvalid("not what was sealed")
        return message

    return Values(keys, stored, read)


def flip_bit(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    data = bytearray(values.stored[index])
    for bit in draw.sample(range(8 * len(data)), draw.randint(1, 8)):
        data[bit // 8] ^= 1 << bit % 8
    return values.keys[index], bytes(data)


def cut_end(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    data = values.stored[index]
    return values.keys[index], data[: draw.randrange(len(data))]


def append_bytes(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    return values.keys[index], values.stored[index] + draw.randbytes(draw.randint(1, 100))


def swap_values(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    source = draw.choice([number for number in range(len(values.keys)) if number != index])
    return values.keys[index], values.stored[source]


def mix_values(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    """The beginning of one, the rest of another."""
    _, data = swap_values(values, draw, index)
    at = draw.choice((8, 16, HEADER.size, draw.randrange(1, min(len(data), len(values.stored[index])))))
    mixture = values.stored[index][:at] + data[at:]
    return values.keys[index], mixture if mixture != values.stored[index] else mixture + b"\0"


def overwrite_bytes(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    data = bytearray(values.stored[index])
    at = draw.randrange(len(data))
    data[at : at + 16] = bytes(byte ^ draw.randint(1, 255) for byte in data[at : at + 16])
    return values.keys[index], bytes(data)


def random_bytes(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    return values.keys[index], draw.choice((b"", MAGIC)) + draw.randbytes(draw.choice((0, 1, 47, 48, 49, 500)))


def signed_by_a_stranger(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    key = values.keys[index]
    if values is messages():
        return key, sign(STRANGER, key, dump(Failure("SpecUnsatisfiable", "forged", {})))
    return key, encode(compile_spec(RegexSpec(PATTERNS[index]), VOCABULARY), automaton_secret(STRANGER, key))


def of_an_older_format(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    return values.keys[index], b"ABSDFA%02d" % draw.choice((0, 1, 99)) + values.stored[index][8:]


def changed_header(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    """A header with other lengths, and a signature that was made up."""
    data = values.stored[index].ljust(HEADER.size, b"\0")
    _, raw, length, signature = HEADER.unpack_from(data)
    lengths = draw.choice(((raw + 1, length), (raw, length + 1), (2**32 - 1, length), (0, 0), (length, raw)))
    new_signature = draw.choice((signature, bytes(32), draw.randbytes(32)))
    return values.keys[index], HEADER.pack(MAGIC, *lengths, new_signature) + data[HEADER.size :]


def declare_bomb(values: Values, draw: random.Random, index: int) -> tuple[str, bytes]:
    """A correctly signed value that unpacks to more than it declares.

    It may also exceed the limit. Only a valid signature gets it that far.
    """
    key = values.keys[index]
    body = _bomb(draw.random() < 0.5)
    raw = draw.choice((100, RAW_BYTES_MAX, RAW_BYTES_MAX + 1, 2**32 - 1))
    secret = automaton_secret(draw.choice((SECRET, STRANGER)), key)
    return key, _signed(HEADER.pack(MAGIC, raw, len(body), bytes(32)), body, secret)


@functools.cache
def _bomb(declares_size: bool) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=declares_size).compress(bytes(BOMB_BYTES))


def _signed(head: bytes, body: bytes, secret: bytes) -> bytes:
    return head[:16] + hmac.digest(secret, head[:16] + body, "sha256") + body


WAYS: tuple[Way, ...] = (
    flip_bit, cut_end, append_bytes, swap_values, mix_values, overwrite_bytes, random_bytes,
    signed_by_a_stranger, of_an_older_format, changed_header, declare_bomb,
)


def run_case(seed: int) -> str:
    """Change one value and have it read: the way it was changed. Raises Accepted, or what reading must not raise."""
    draw = random.Random(seed)
    values = automata() if draw.random() < 0.8 else messages()
    mutate = draw.choice(WAYS)
    key, data = mutate(values, draw, draw.randrange(len(values.keys)))
    try:
        values.read(key, data)
    except ArtefactInvalid:
        return mutate.__name__
    raise Accepted(f"seed {seed}: a value that was {mutate.__name__} was accepted")


def confirm_all_are_read() -> None:
    """The unchanged values are accepted: else nothing is shown."""
    for values in (automata(), messages()):
        for key, data in zip(values.keys, values.stored, strict=True):
            values.read(key, data)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    confirm_all_are_read()
    refused: collections.Counter[str] = collections.Counter()
    failed, start, first = 0, time.monotonic(), args.seed * 10_000_000
    for seed in range(first, first + args.cases):
        try:
            refused[run_case(seed)] += 1
        except Exception as error:  # whatever it is, the seed must be known
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    seconds = time.monotonic() - start
    print(f"{args.cases} values, {seconds:.0f} s: {failed} accepted or badly refused; {dict(refused)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
