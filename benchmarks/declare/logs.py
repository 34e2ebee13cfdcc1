"""Reads public event logs and their rules of Declare.

They are in the folder `data` of axelmezini/suffix-prediction: BPIC 2013 (closed problems), sepsis, and BPIC 2020
(travel). The authors mined the rules from the test part, whose traces satisfy them; the training part has noise. Of
BPIC 2020 some copies of the repository hold the test part alone. It is then divided by time: four fifths train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from compiler.artifact import CompiledConstraint
from compiler.lifting import TokenAutomaton
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import LtlfFormula, parse_formula
from compiler.pipeline import compile_spec
from compiler.policies import read_decl
from compiler.policies.declare import expanded
from compiler.spec import spec_from_json
from compiler.vocab import byte_vocabulary
from tests.references.ltlf import satisfies

LOGS = ("BPIC_2013_closed", "sepsis", "BPIC_2020_travel")
_TEST, _RULES = "test_20_all", "test_all_85-100"
_TRAINING_SHARE = 0.8
Trace = tuple[int, ...]
"""The numbers of a trace's activities."""


@dataclass(frozen=True, slots=True)
class EventLog:
    """A log with its rules.

    activities  their names, by number
    rules       as templates of Declare
    divided     whether the training part is a part of the stored test part
    """

    name: str
    _: KW_ONLY
    activities: tuple[str, ...]
    training: tuple[Trace, ...]
    test: tuple[Trace, ...]
    rules: tuple[str, ...]
    divided: bool

    @property
    def usual_length(self) -> int:
        """A length that 99 % of the training traces keep to."""
        return int(np.ceil(np.percentile([len(trace) for trace in self.training], 99)))


def read_log(checkout: Path, name: str, noise: str) -> EventLog:
    """A log of a checkout. `noise` names the training part: from 01n to 04n, the share of changed traces grows."""
    folder = checkout / "data" / name
    training_file = folder / "log" / f"train_80_all_{noise}.xes"
    test = read_traces(folder / "log" / f"{_TEST}.xes")
    divided = not training_file.exists()
    if divided:
        border = int(_TRAINING_SHARE * len(test))
        training, test = test[:border], test[border:]
    else:
        training = read_traces(training_file)
    rules = tuple(read_decl((folder / "model" / f"{_RULES}.decl").read_text(encoding="utf-8")))
    activities = tuple(sorted({activity for trace in (*training, *test) for activity in trace}))
    number = {activity: index for index, activity in enumerate(activities)}
    parts = [tuple(tuple(number[activity] for activity in trace) for trace in part) for part in (training, test)]
    return EventLog(
        name, activities=activities, training=parts[0], test=parts[1], rules=rules, divided=divided
    )


def read_traces(path: Path) -> list[list[str]]:
    """The names of the activities of each trace of an XES file. Traces stand in the order of their first event."""
    traces = []
    for _, element in ElementTree.iterparse(path):
        if element.tag.endswith("trace"):
            events = [child for child in element if child.tag.endswith("event")]
            traces.append([_value(event, "concept:name") for event in events])
            element.clear()
    return [trace for trace in traces if trace]


def _value(event: ElementTree.Element, key: str) -> str:
    return next(each.attrib["value"] for each in event if each.attrib.get("key") == key)


class Rules:
    """The rules of a log, as an automaton and as formulas.

    The automaton decides what may follow, the formulas judge finished traces without it.
    """

    def __init__(self, rules: Sequence[str], activities: Sequence[str]) -> None:
        guard = ResourceGuard(Limits())
        # Between two events of a log stands no result, which the chain templates would pass over.
        sources = [expanded(rule) for rule in rules]
        self._activities = activities
        self._formulas: list[LtlfFormula] = [parse_formula(source, guard) for source in sources]
        spec = spec_from_json({"all": [{"ltlf": source} for source in sources], "labels": list(activities)})
        self.constraint: CompiledConstraint = compile_spec(spec, byte_vocabulary())
        self._verdicts: dict[Trace, bool] = {}

    @property
    def automaton(self) -> TokenAutomaton:
        """The automaton over the numbers of activities. The number behind the last one ends a trace."""
        assert isinstance(self.constraint.tokens, TokenAutomaton)
        return self.constraint.tokens

    def holds(self, trace: Trace) -> bool:
        """Whether a finished trace satisfies all rules."""
        if trace not in self._verdicts:
            letters = [frozenset([self._activities[number]]) for number in trace]
            self._verdicts[trace] = bool(trace) and all(satisfies(each, letters) for each in self._formulas)
        return self._verdicts[trace]

    def distance(self, trace: Trace) -> int:
        """The fewest ids with which a trace can end, the end included."""
        return int(self.automaton.distance[state_after(self.automaton, trace)])


def state_after(automaton: TokenAutomaton, trace: Trace, start: int | None = None) -> int:
    """The state after some activities, from a state or from the beginning."""
    state = int(automaton.start) if start is None else start
    for token in trace:
        state = int(automaton.successors(state)[automaton.token_class[token]])
    return state
