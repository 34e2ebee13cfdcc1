"""Chooses the engines that turn formulas and patterns into automata. They are ours, or those of the paper's tool chain.

One interface for all of them, chosen once per deployment by name. Foreign packages are imported when they are chosen,
never before: MONA by way of LTLf2DFA (extra `compile`, and the program `mona`), FAdo (GPL-3, `make reference`). MONA's
process is under the guard; LTLf2DFA and FAdo know no guard, which is asked between their steps, so that a process
that can be killed is what bounds them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from compiler.automata import Dfa, Minterms
from compiler.errors import EngineFailure
from compiler.limits import ResourceGuard
from compiler.ltlf import LtlfFormula, formula_to_dfa, formula_to_dfa_mona, require_ltlf2dfa
from compiler.regex import Node, node_to_dfa, node_to_dfa_fado, require_fado

FormulaEngine: TypeAlias = Callable[[LtlfFormula, Sequence[frozenset[str]], ResourceGuard], Dfa]
NodeEngine: TypeAlias = Callable[[Node, ResourceGuard], tuple[Dfa, Minterms]]


@dataclass(frozen=True, slots=True)
class Engines:
    """The two functions that make automata. What either returns is minimal, complete and in canonical form.

    formula  a formula and the letters to the DFA over them, as `compiler.ltlf.formula_to_dfa`
    node     a pattern's tree to the DFA over the minterms of its character sets, as `compiler.regex.node_to_dfa`
    """

    formula: FormulaEngine
    node: NodeEngine


NATIVE = Engines(formula_to_dfa, node_to_dfa)


def open_engines(ltlf: str = "native", regex: str = "native", *, mona: str = "mona") -> Engines:
    """The engines of these names: "native" or "mona" for formulas, "native" or "fado" for patterns.

    mona  the program's path, or its name on PATH
    Raises ValueError for other names, and EngineFailure, with the way to install it, where the engine is absent.
    """
    for kind, name, names in (("LTLf", ltlf, ("native", "mona")), ("regex", regex, ("native", "fado"))):
        # A misspelt name stops the service at its start.
        if name not in names:
            raise ValueError(f"there is no {kind} engine of the name {name!r}; there are {', '.join(names)}")
    # An absent engine is found at the start of the service, not at the first request.
    if ltlf == "mona":
        if shutil.which(mona) is None:
            advice = "install it (Debian and Ubuntu: apt install mona), or choose the engine native"
            raise EngineFailure(f"the program MONA is not on PATH: {advice}")
        require_ltlf2dfa()
    if regex == "fado":
        require_fado()
    by_mona = partial(formula_to_dfa_mona, binary=mona)
    formula: FormulaEngine = partial(formula_to_dfa, translate=by_mona) if ltlf == "mona" else formula_to_dfa
    return Engines(formula, node_to_dfa_fado if regex == "fado" else node_to_dfa)
