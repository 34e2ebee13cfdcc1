"""The method of GeLaTo (Zhang et al., 2023) and Ctrl-G (Zhang et al., 2024), written anew from their equations.

p(x[t] | x[<t], a) is taken for proportional to p_LM(x[t] | x[<t]) p_HMM(a | x[<=t]), a the event that the text ends in
time and is accepted. An automaton over token ids knows the spellings of each concept's forms after a space, so that
another spelling is no occurrence and a longer word may be one: that is the published method.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from benchmarks.systems.base import CannotSay, Wanted
from benchmarks.systems.hmm_model import HiddenMarkov, path_of
from benchmarks.systems.transformers_based import opened

ROOT = 0
LENGTH_PENALTY = 0.5  # of the last choice, as ours


class Spellings:
    """Aho and Corasick's automaton over the spellings of all concepts: `next[node]` by token where it is not ROOT's."""

    def __init__(self, spellings: list[list[tuple[int, ...]]]) -> None:
        children: list[dict[int, int]] = [{}]
        self.out: list[frozenset[int]] = [frozenset()]
        for concept, forms in enumerate(spellings):
            for ids in forms:
                node = ROOT
                for token in ids:
                    if token not in children[node]:
                        children.append({})
                        self.out.append(frozenset())
                        children[node][token] = len(children) - 1
                    node = children[node][token]
                self.out[node] |= {concept}
        self.next = [dict(children[ROOT])] + [{} for _ in children[1:]]
        fail, waiting = [ROOT] * len(children), deque(children[ROOT].values())
        while waiting:
            node = waiting.popleft()
            self.out[node] |= self.out[fail[node]]
            self.next[node] = dict(self.next[fail[node]])
            for token, child in children[node].items():
                fail[child] = self.next[fail[node]].get(token, ROOT)
                self.next[node][token] = child
                waiting.append(child)


@dataclass(frozen=True, slots=True)
class Row:
    """A beam: its tokens, their log-prob under the language model, and where automaton and HMM are."""

    tokens: tuple[int, ...]
    log_prob: float
    done: int
    node: int
    ended: bool
    hidden: Tensor  # (H,) of the next token's state


class Hmm:
    """Beam search with it. The model of a folder is distilled beforehand (`hmm_model.py`)."""

    def __init__(self, beams: int) -> None:
        self._beams = beams

    def open(self, folder: str) -> None:
        self._model, self._tokenizer = opened(folder)
        self._eos = int(self._tokenizer.eos_token_id)
        self._hmm = HiddenMarkov.load(path_of(folder))

    def constrain(self, wanted: Wanted) -> None:
        if not wanted.concepts:
            raise CannotSay("its automata are of concepts")
        space = len(self._tokenizer("a", add_special_tokens=False).input_ids)
        self._spellings = Spellings([
            [tuple(self._tokenizer(f"a {form}", add_special_tokens=False).input_ids[space:]) for form in forms]
            for forms in wanted.concepts
        ])  # fmt: skip
        self._concepts, self._ordered = len(wanted.concepts), wanted.ordered
        self._chances: list[Tensor] = []

    def _after(self, done: int, out: frozenset[int]) -> int:
        """What has occurred: a bit for each concept; where the order counts, how many of them."""
        if not self._ordered:
            return done | sum(1 << concept for concept in out)
        return done + 1 if done in out else done

    @property
    def _all(self) -> int:
        return self._concepts if self._ordered else (1 << self._concepts) - 1

    def _chance(self, left: int) -> Tensor:
        """p(a | state, hidden state of the token before) with so many tokens left, (done, node, H)."""
        hmm, size = self._hmm, len(self._spellings.next)
        while len(self._chances) <= left:
            if not self._chances:
                self._chances.append(torch.zeros(self._all + 1, size, len(hmm.first)))
                continue
            self._chances.append(self._written(self._chances[-1]) @ hmm.moves.T)
        return self._chances[left]

    def _written(self, then: Tensor) -> Tensor:
        """The same, by the hidden state that writes the next token, where `then` is of the tokens after it."""
        writes, spellings = self._hmm.writes, self._spellings
        base = then[:, ROOT]  # (done, H): after a token that is in no spelling

        def gained(token: int, node: int) -> Tensor:
            after = [self._after(done, spellings.out[node]) for done in range(self._all + 1)]
            return writes[:, token] * (then[after, node] - base)

        at_root = {token: gained(token, node) for token, node in spellings.next[ROOT].items()}
        found = torch.empty_like(then)
        found[:] = (base * (1 - writes[:, self._eos]) + sum(at_root.values(), torch.zeros_like(base)))[:, None]
        found[self._all] += writes[:, self._eos]
        for place, edges in enumerate(spellings.next):
            for token, node in edges.items():
                if node != spellings.next[ROOT].get(token, ROOT):
                    found[:, place] += gained(token, node) - at_root.get(token, torch.zeros_like(base))
        return found

    def _kept(self, row: Row, left: int) -> Tensor:
        """log p_HMM(a | tokens, next token) by that token, (V,), with so many tokens left after it."""
        hmm, spellings, then = self._hmm, self._spellings, self._chance(left)
        writes = row.hidden @ hmm.writes
        kept = (row.hidden * then[row.done, ROOT]) @ hmm.writes
        for token, node in (spellings.next[ROOT] | spellings.next[row.node]).items():
            chance = then[self._after(row.done, spellings.out[node]), node]
            kept[token] = (row.hidden * hmm.writes[:, token]) @ chance
        kept[self._eos] = writes[self._eos] if row.done == self._all else 0.0
        return (kept / writes).log()

    def _step(self, row: Row, token: int, log_prob: float) -> Row:
        hmm = self._hmm
        if token == self._eos:
            return Row(row.tokens, log_prob, row.done, ROOT, True, row.hidden)
        node = self._spellings.next[row.node].get(token, ROOT)
        seen = row.hidden * hmm.writes[:, token]
        hidden = (seen / seen.sum()) @ hmm.moves
        done = self._after(row.done, self._spellings.out[node])
        return Row((*row.tokens, token), log_prob, done, node, False, hidden)

    @torch.inference_mode()
    def answer(self, prompt: str, max_tokens: int) -> str:
        ids = torch.tensor([self._tokenizer(prompt).input_ids])
        cache = DynamicCache()
        logits = self._model(ids, past_key_values=cache, use_cache=True).logits[:, -1]
        rows = [Row((), 0.0, 0, ROOT, False, self._hmm.first)]
        ended: list[Row] = []
        for left in reversed(range(max_tokens)):
            log_probs = torch.log_softmax(logits, -1) + torch.tensor([[row.log_prob] for row in rows])
            guided = log_probs + torch.stack([self._kept(row, left) for row in rows])
            best, places = guided.nan_to_num(-torch.inf).flatten().topk(min(2 * self._beams, guided.numel()))
            parents, tokens = places // guided.shape[1], places % guided.shape[1]
            chosen = [
                (int(parent), self._step(rows[parent], int(token), float(log_probs[parent, token])))
                for score, parent, token in zip(best, parents, tokens, strict=True) if score > -torch.inf
            ]  # fmt: skip
            ended += [row for _, row in chosen if row.ended]
            going = [(parent, row) for parent, row in chosen if not row.ended][: self._beams]
            if not going or not left:
                break
            rows = [row for _, row in going]
            cache.reorder_cache(torch.LongTensor([parent for parent, _ in going]))
            logits = self._model(
                torch.tensor([[row.tokens[-1]] for row in rows]), past_key_values=cache, use_cache=True
            ).logits[:, -1]
        if not ended:
            return ""
        best_row = max(ended, key=lambda row: row.log_prob / (len(row.tokens) + 1) ** LENGTH_PENALTY)
        return str(self._tokenizer.decode(list(best_row.tokens), skip_special_tokens=True))
