"""The bytes of each token id, and the tries that lifting walks. This module knows no tokenizer format."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

# The plain characters in UTF-8: those that JSON writes in a string as they are. Ranges of bytes, one after the other.
PLAIN_CHARACTERS = (
    ((0x20, 0x21),), ((0x23, 0x5B),), ((0x5D, 0x7F),), ((0xC2, 0xDF), (0x80, 0xBF)),
    ((0xE0, 0xE0), (0xA0, 0xBF), (0x80, 0xBF)), ((0xE1, 0xEC), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xED, 0xED), (0x80, 0x9F), (0x80, 0xBF)), ((0xEE, 0xEF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF0, 0xF0), (0x90, 0xBF), (0x80, 0xBF), (0x80, 0xBF)), ((0xF1, 0xF3), (0x80, 0xBF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF4, 0xF4), (0x80, 0x8F), (0x80, 0xBF), (0x80, 0xBF)),
)  # fmt: skip
_PLAIN = re.compile(b"(?:%s)*" % b"|".join(
    b"".join(b"[\\x%02x-\\x%02x]" % ends for ends in character) for character in PLAIN_CHARACTERS
))  # fmt: skip
_SILENT = re.compile(b"[\xfe\xff]")  # bytes that no text holds; constraints read them beside a text


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Trie:
    """A trie of byte strings, in level order. N nodes, node 0 is the root.

    levels      per depth the slice of its nodes; level 0 is the root alone
    parent      int64 [N]    the parent's place in its own level; 0 at the root
    byte        uint8 [N]    the byte on the edge from the parent; 0 at the root
    key         int64 [N]    256 * parent's node + byte, ascending; -1 at the root
    first_child int64 [N+1]  the children of node n are first_child[n] .. first_child[n + 1] - 1
    ids         int32 [M]    the vocabulary ids that the trie spells, by the node at which they end
    node        int64 [M]    that node's place in its level
    first_id    int64 [N+1]  the ids that end at node n stand at first_id[n] .. first_id[n + 1] - 1 of `ids`
    """

    levels: tuple[slice, ...]
    parent: np.ndarray
    byte: np.ndarray
    key: np.ndarray
    first_child: np.ndarray
    ids: np.ndarray
    node: np.ndarray
    first_id: np.ndarray


def build_trie(tokens: list[tuple[int, bytes]]) -> Trie:
    """The trie of (id, non-empty bytes) pairs, built level by level."""
    ids = np.array([token for token, _ in tokens], dtype=np.int32)
    lengths = np.array([len(text) for _, text in tokens], dtype=np.int64)
    flat = np.frombuffer(b"".join(text for _, text in tokens), dtype=np.uint8)
    offset = np.cumsum(lengths) - lengths
    at = np.zeros(len(tokens), dtype=np.int64)
    levels, parents, keys, children, nodes = [slice(0, 1)], [np.zeros(1, dtype=np.int64)], [np.array([-1])], [], 1
    # One level a round: all tokens that are longer than `depth` step down by one byte.
    for depth in range(int(lengths.max()) if len(tokens) else 0):
        active = np.flatnonzero(lengths > depth)
        # (node, byte) as one integer: equal ones are the same child.
        key = at[active] * 256 + flat[offset[active] + depth]
        children_keys, inverse = np.unique(key, return_inverse=True)
        at[active] = nodes + inverse
        above = levels[-1]
        parents.append(children_keys // 256 - above.start)
        # Children of one node are adjacent, since the keys are sorted by parent.
        children.append(np.bincount(parents[-1], minlength=above.stop - above.start))
        levels.append(slice(nodes, nodes + len(children_keys)))
        keys.append(children_keys)
        nodes += len(children_keys)
    children.append(np.zeros(levels[-1].stop - levels[-1].start, dtype=np.int64))
    # Ids by the node at which they end; ids with equal bytes end at one node.
    by_node = np.argsort(at, kind="stable")
    # Nodes are numbered over all levels; the arrays name them within their level.
    starts = np.array([level.start for level in levels])
    key = np.concatenate(keys)
    byte = (key % 256).astype(np.uint8)
    byte[0] = 0
    return Trie(
        levels=tuple(levels), parent=np.concatenate(parents), byte=byte, key=key,
        first_child=1 + np.concatenate([[0], np.cumsum(np.concatenate(children))]), ids=ids[by_node],
        node=at[by_node] - starts[np.searchsorted(starts, at[by_node], side="right") - 1],
        first_id=np.concatenate([[0], np.cumsum(np.bincount(at, minlength=nodes))]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class TokenOutlines:
    """The distinct outlines of the tokens that begin a character. They are numbered from 1.

    trie   over their numbers
    of_id  int32 [V]  the outline of each id, 0 for other ids

    A token's outline has spaces in place of its leading plain characters. Where these act alike, tokens act like their
    outlines. A vocabulary of 200,000 tokens has some 2,600, or 3,500 if the number of plain characters matters.
    """

    trie: Trie
    of_id: np.ndarray


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The bytes of each id. `tokens[i]` is None where id i never occurs in a text: specials, gaps, padding, EOS.

    eos_ids       the ids that end a text, at least one
    names         the ids that a constraint may name: special tokens, and others that were added to the tokenizer
    checks_texts  whether the ids are the bytes of texts, and of what constraints read beside them
    Raises ValueError where an EOS id is out of range or writes bytes.

    >>> vocabulary = Vocabulary((b"a", b" dog", None), eos_ids=(2,))
    >>> vocabulary.size, vocabulary.boundary_trie.ids.tolist()  # the trie orders ids by their bytes
    (3, [0, 1])
    """

    tokens: tuple[bytes | None, ...]
    eos_ids: tuple[int, ...]
    names: Mapping[str, int] = field(default_factory=dict)
    checks_texts: bool = False

    def __post_init__(self) -> None:
        if not self.eos_ids:
            raise ValueError("a vocabulary has at least one EOS id")
        # EOS ends a text and writes nothing: a constraint must not see it as bytes.
        for eos in self.eos_ids:
            if not 0 <= eos < len(self.tokens) or self.tokens[eos] is not None:
                raise ValueError(f"EOS id {eos} is outside the vocabulary, or writes bytes")
        if not all(0 <= named < len(self.tokens) for named in self.names.values()):
            raise ValueError("names has ids of the vocabulary")

    @property
    def size(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hex, over every id's bytes and the EOS ids.

        An artefact is used only with a vocabulary of the same fingerprint.
        """
        # Each token is preceded by its length, so that no two vocabularies have one stream of bytes.
        digest = hashlib.sha256(repr(self.eos_ids).encode())
        for token in self.tokens:
            digest.update(b"-" if token is None else b"%d:" % len(token) + token)
        for name, number in sorted(self.names.items()):
            digest.update(b"%d=%d:" % (number, len(name.encode())) + name.encode())
        digest.update(b"texts" if self.checks_texts else b"")
        return digest.hexdigest()

    @functools.cached_property
    def written(self) -> tuple[bytes | None, ...]:
        """What each id is decoded to. A special token is decoded to its name."""
        written = list(self.tokens)
        for name, number in self.names.items():
            written[number] = written[number] or name.encode()
        for eos in self.eos_ids:
            written[eos] = None
        return tuple(written)

    def marked(self, names: Iterable[str]) -> Vocabulary:
        """The vocabulary in which these names are read between two MARK_BYTE. No other token has such a byte."""
        tokens = [None if token and _SILENT.search(token) else token for token in self.tokens]
        for name in names:
            tokens[self.names[name]] = b"\xff%s\xff" % name.encode()
        return replace(self, tokens=tuple(tokens))

    @functools.cached_property
    def boundary_trie(self) -> Trie:
        """The tokens whose first byte starts a character. They can follow a complete character."""
        return build_trie([(i, token) for i, token in enumerate(self.tokens) if token and token[0] & 0xC0 != 0x80])

    @functools.cached_property
    def outlines(self) -> TokenOutlines:
        """The outlines with one space for all leading plain characters.

        They serve states in which the number of these does not matter.
        """
        return self._outlines(1)

    @functools.cached_property
    def counted_outlines(self) -> TokenOutlines:
        """The outlines with one space for each leading plain character."""
        return self._outlines(None)

    def _outlines(self, spaces_max: int | None) -> TokenOutlines:
        number: dict[bytes, int] = {}
        of_id = np.zeros(self.size, dtype=np.int32)
        for i in self.boundary_trie.ids.tolist():
            token = self.tokens[i] or b""
            plain = _PLAIN.match(token)
            assert plain is not None  # it may be empty
            text = b" " * len(plain[0].decode()[:spaces_max]) + token[plain.end() :]
            of_id[i] = number.setdefault(text, len(number) + 1)
        return TokenOutlines(build_trie([(i, text) for text, i in number.items()]), of_id)

    @functools.cached_property
    def midchar_trie(self) -> Trie:
        """The tokens whose first byte continues a UTF-8 character."""
        return build_trie([(i, token) for i, token in enumerate(self.tokens) if token and token[0] & 0xC0 == 0x80])


def byte_vocabulary(*, checks_texts: bool = False) -> Vocabulary:
    """256 ids of one byte each, and EOS as id 256."""
    return Vocabulary((*(bytes([value]) for value in range(256)), None), (256,), checks_texts=checks_texts)
