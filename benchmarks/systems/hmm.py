"""GeLaTo (Zhang et al., 2023) and Ctrl-G (Zhang et al., 2024). The method is implemented from their equations.

p(x[t] | x[<t], a) is approximated as proportional to p_LM(x[t] | x[<t]) p_HMM(a | x[<=t]), where a is the event that
the text ends within the budget and is accepted. An automaton over token ids accepts the spellings of each concept's
forms after a space. As in the published method it knows tokens, not words: another spelling does not count as an
occurrence, and a longer word may count as one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from benchmarks.systems.base import ConstraintNotSupported, TextConstraint
from benchmarks.systems.hmm_model import HiddenMarkovModel, model_path
from benchmarks.systems.transformers_systems import load_model, spelling_after_space
from decoding.model import cache_name

ROOT = 0
LENGTH_PENALTY = 0.5  # of the choice among the complete texts, as in our search


class SpellingAutomaton:
    """The Aho-Corasick automaton of all concepts' spellings (Aho and Corasick 1975).

    output       by node: the concepts of which a spelling ends there
    transitions  by node: the next node by token; a missing token leads to ROOT
    kind         by node: a number that nodes with the same transitions share, from 0 for ROOT
    """

    def __init__(self, spellings: list[list[tuple[int, ...]]]) -> None:
        children: list[dict[int, int]] = [{}]
        self.output: list[frozenset[int]] = [frozenset()]
        for concept, forms in enumerate(spellings):
            for ids in forms:
                node = ROOT
                for token in ids:
                    if token not in children[node]:
                        children.append({})
                        self.output.append(frozenset())
                        children[node][token] = len(children) - 1
                    node = children[node][token]
                self.output[node] |= {concept}
        self.transitions = [dict(children[ROOT])] + [{} for _ in children[1:]]
        fail, queue = [ROOT] * len(children), deque(children[ROOT].values())
        while queue:  # breadth first: the fail link of a node leads to a shorter one
            node = queue.popleft()
            self.output[node] |= self.output[fail[node]]
            self.transitions[node] = dict(self.transitions[fail[node]])
            for token, child in children[node].items():
                fail[child] = self.transitions[fail[node]].get(token, ROOT)
                self.transitions[node][token] = child
                queue.append(child)
        kinds: dict[frozenset[tuple[int, int]], int] = {}
        self.kind = [kinds.setdefault(frozenset(edges.items()), len(kinds)) for edges in self.transitions]


@dataclass(frozen=True, slots=True)
class HmmBeam:
    """One beam.

    progress  of the concepts: a bit for each that has occurred; if the order counts, how many have
    node      of the automaton
    hidden    [H] distribution of the HMM's state at the next token
    """

    tokens: tuple[int, ...]
    log_prob: float
    progress: int
    node: int
    ended: bool
    hidden: Tensor


class HmmSearch:
    """Beam search guided by the HMM of the folder's model. `hmm_model.py` estimates the HMM beforehand."""

    def __init__(self, beams: int, states: int) -> None:
        self._beams, self._states = beams, states

    def open(self, folder: str) -> None:
        self._model, self._tokenizer = load_model(folder)
        self._eos = int(self._tokenizer.eos_token_id)
        self._hmm = HiddenMarkovModel.load(model_path(folder, self._states))
        self._emission_by_token = self._hmm.emission.T.contiguous()

    def constrain(self, constraint: TextConstraint) -> None:
        if not constraint.concepts:
            raise ConstraintNotSupported("the system takes only concepts")
        self._spellings = SpellingAutomaton(
            [[tuple(spelling_after_space(self._tokenizer, form)) for form in forms] for forms in constraint.concepts]
        )
        self._concepts, self._ordered = len(constraint.concepts), constraint.ordered
        self._acceptance: list[Tensor] = []

    def _advance(self, progress: int, output: frozenset[int]) -> int:
        """The progress after a node with this output."""
        if not self._ordered:
            return progress | sum(1 << concept for concept in output)
        return progress + 1 if progress in output else progress

    @property
    def _complete(self) -> int:
        """The progress of an accepted text."""
        return self._concepts if self._ordered else (1 << self._concepts) - 1

    def _acceptance_prob(self, left: int) -> Tensor:
        """p(a|progress, kind, hidden state) with `left` tokens left: [progress, kinds, H].

        The hidden state is that of the last token. Nodes of one kind accept the same texts, so they share a row.
        """
        hmm, kinds = self._hmm, max(self._spellings.kind) + 1
        while len(self._acceptance) <= left:
            if not self._acceptance:
                self._acceptance.append(torch.zeros(self._complete + 1, kinds, len(hmm.initial)))
                continue
            self._acceptance.append(self._by_next_state(self._acceptance[-1]) @ hmm.transition.T)
        return self._acceptance[left]

    def _by_next_state(self, then: Tensor) -> Tensor:
        """The probability by the next token's hidden state: [progress, kinds, H].

        Almost all tokens lead to ROOT without progress, so their sum is computed once and the others are corrections.

        then  [progress, kinds, H]  the probability after the next token
        """
        emission, spellings = self._emission_by_token, self._spellings
        base = then[:, ROOT]  # [progress, H]

        def correction(token: int, node: int) -> Tensor:
            after = [self._advance(progress, spellings.output[node]) for progress in range(self._complete + 1)]
            return emission[token] * (then[after, spellings.kind[node]] - base)

        at_root = {token: correction(token, node) for token, node in spellings.transitions[ROOT].items()}
        prob = torch.empty_like(then)
        prob[:] = (base * (1 - emission[self._eos]) + sum(at_root.values(), torch.zeros_like(base)))[:, None]
        prob[self._complete] += emission[self._eos]
        for kind, edges in dict(zip(spellings.kind, spellings.transitions, strict=True)).items():
            for token, node in edges.items():
                if node != spellings.transitions[ROOT].get(token, ROOT):
                    prob[:, kind] += correction(token, node) - at_root.get(token, torch.zeros_like(base))
        return prob

    def _log_acceptance(self, beams: list[HmmBeam], left: int) -> Tensor:
        """The log-prob of acceptance after each next token: [beams, V].

        It is log p_HMM(a | tokens, next token). After the next token, `left` tokens are left.
        """
        spellings, then = self._spellings, self._acceptance_prob(left)
        hidden = torch.stack([beam.hidden for beam in beams])
        at_root = hidden * then[[beam.progress for beam in beams], ROOT]
        emitted, joint = (torch.cat((hidden, at_root)) @ self._hmm.emission).chunk(2)
        for row, beam in enumerate(beams):
            for token, node in (spellings.transitions[ROOT] | spellings.transitions[beam.node]).items():
                acceptance = then[self._advance(beam.progress, spellings.output[node]), spellings.kind[node]]
                joint[row, token] = (beam.hidden * self._emission_by_token[token]) @ acceptance
            joint[row, self._eos] = emitted[row, self._eos] if beam.progress == self._complete else 0.0
        return (joint / emitted).log()

    def _extend(self, beam: HmmBeam, token: int, log_prob: float) -> HmmBeam:
        hmm = self._hmm
        if token == self._eos:
            return HmmBeam(beam.tokens, log_prob, beam.progress, ROOT, True, beam.hidden)
        node = self._spellings.transitions[beam.node].get(token, ROOT)
        posterior = beam.hidden * self._emission_by_token[token]
        hidden = (posterior / posterior.sum()) @ hmm.transition
        progress = self._advance(beam.progress, self._spellings.output[node])
        return HmmBeam((*beam.tokens, token), log_prob, progress, node, False, hidden)

    @torch.inference_mode()
    def answer(self, prompt: str, max_tokens: int) -> str:
        ids = torch.tensor([self._tokenizer(prompt).input_ids])
        cache = DynamicCache()
        options = {cache_name(self._model): cache, "use_cache": True}
        logits = self._model(ids, **options).logits[:, -1]
        beams = [HmmBeam((), 0.0, 0, ROOT, False, self._hmm.initial)]
        finished_beams: list[HmmBeam] = []
        for left in reversed(range(max_tokens)):
            log_probs = torch.log_softmax(logits, -1) + torch.tensor([[beam.log_prob] for beam in beams])
            guided = log_probs + self._log_acceptance(beams, left)
            scores, flat = guided.nan_to_num(-torch.inf).flatten().topk(min(2 * self._beams, guided.numel()))
            parents, tokens = flat // guided.shape[1], flat % guided.shape[1]
            extensions = [
                (int(parent), self._extend(beams[parent], int(token), float(log_probs[parent, token])))
                for score, parent, token in zip(scores, parents, tokens, strict=True) if score > -torch.inf
            ]  # fmt: skip
            finished_beams += [beam for _, beam in extensions if beam.ended]
            live = [(parent, beam) for parent, beam in extensions if not beam.ended][: self._beams]
            if not live or not left:
                break
            beams = [beam for _, beam in live]
            cache.reorder_cache(torch.LongTensor([parent for parent, _ in live]))
            logits = self._model(torch.tensor([[beam.tokens[-1]] for beam in beams]), **options).logits[:, -1]
        if not finished_beams:
            return ""
        best = max(finished_beams, key=lambda beam: beam.log_prob / (len(beam.tokens) + 1) ** LENGTH_PENALTY)
        return str(self._tokenizer.decode(list(best.tokens), skip_special_tokens=True))
