"""Parameters of generations and decodings, with limits that are cheap to check."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

from pydantic import JsonValue

from app.errors import InvalidRequest, RequestOverLimit
from app.messages import Failure, GenerationOptions, Priority, RequestPlace, ScorerTask, WarningBody, place_of
from app.models import ModelFiles
from app.settings import Settings
from compiler.diagnostics import contradiction
from compiler.lifting import BUDGET_MAX
from compiler.spec import LabelsSpec, Spec

_SEEDS = 2**53  # a double, as which many readers parse JSON numbers, is exact below it


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateParams:
    """The parameters of a generation. Exactly one of `spec` and `automaton` is given.

    prompt              a text, or its token ids as they are
    stream              whether the events of each step are streamed
    markers             where the prompt has tokens that structure it, as a chat template wrote them; None if the
                        tokenizer finds them
    clamp_to_context    whether the budget shrinks to the room that the model's context leaves; for a budget that the
                        caller did not set
    answer              the JSON of an AnswerReader, which finds thoughts and messages; None if answers are texts
    messages            whether each choice has the message that the reader finds in it
    places              where the parts of `spec` stand in the request; None: all of it is the caller's constraint
    stops               strings that may end an answer, and are then removed
    excludes_stops      whether `spec` combines a constraint with one that excludes stop strings, by `all`
    prompt_log_probs    how many alternatives to list in the place of each token of the prompt; None: no log-probs of it
    warnings            what is probably a mistake in the request's constraint; None if `spec` is that constraint
    keep_white_space    whether answers keep the white space around them
    """

    prompt: str | tuple[int, ...]
    spec: Spec | None
    automaton: str | None
    options: GenerationOptions
    timeout_s: float | None
    priority: Priority = "interactive"
    stream: bool = False
    markers: tuple[tuple[int, int], ...] | None = None
    clamp_to_context: bool = False
    answer: dict[str, JsonValue] | None = None
    messages: bool = False
    places: tuple[RequestPlace, ...] | None = None
    stops: tuple[str, ...] = ()
    excludes_stops: bool = False
    prompt_log_probs: int | None = None
    warnings: tuple[WarningBody, ...] | None = None
    keep_white_space: bool = False

    @property
    def weight(self) -> int:
        """The request's weight in the queue. It is the number of concurrent rows times their budget."""
        return self.options.rows * self.options.max_tokens


def unsatisfiable_beside_tools(failure: Failure, places: Sequence[RequestPlace]) -> Failure:
    """The failure where no answer in a format of calls fits.

    It names the tool and the keywords of its schema that contradict each other, if these alone are in conflict.
    """
    if not all(place.tool for place in places):
        detail = "no reply satisfies the constraint, and no call the schema of its tool"
    else:
        detail = "no arguments satisfy the schema of a tool that may be called"
    conflict = failure.fields.get("conflict")
    parts = [str(part)[1:].partition("' ") for part in conflict] if isinstance(conflict, list) else []
    found = place_of(parts[0][0], places) if parts else None
    if found is None or not found.tool or any(place_of(path, places) != found for path, _, _ in parts):
        return replace(failure, detail=detail, fields={})  # other parts are not the caller's
    named = [f"'{found.below(path)}' {words}" if found.below(path) else words[1:-1] for path, _, words in parts]
    what = "no input satisfies the grammar" if found.is_text else "no arguments satisfy the schema"
    detail = f'tool "{found.tool}": {what}{contradiction(named)}'
    return replace(failure, detail=detail, fields={"conflict": list[JsonValue](named), "field": found.parameters})


def budget_beside(max_tokens: int, prompt_tokens: int, context_tokens: int | None) -> int:
    """The budget, cut to what the model's context leaves beside the prompt. It is at least one token."""
    if context_tokens is None:
        return max_tokens
    return max(1, min(max_tokens, context_tokens - prompt_tokens + 1))  # the last token is written, never read


def seeded(options: GenerationOptions) -> GenerationOptions:
    """The options with a seed. A missing seed is drawn if the algorithm uses one."""
    if options.algorithm != "sample" or options.seed is not None:
        return options
    return options.model_copy(update={"seed": secrets.randbelow(_SEEDS)})


def seeded_apart(options: GenerationOptions, number: int) -> GenerationOptions:
    """The options of one prompt of several, by its number from 0. It draws by itself.

    The first prompt has the request's seed, and the seeds of the others follow from it.
    """
    if options.seed is None or number == 0:
        return options
    digest = blake2b(f"{options.seed} {number}".encode(), digest_size=8).digest()
    return options.model_copy(update={"seed": int.from_bytes(digest) % _SEEDS})


def check_generate_limits(params: GenerateParams, settings: Settings, files: ModelFiles) -> None:
    """Raise RequestOverLimit if a generation exceeds a setting or the model's context.

    Its memory, which bounds its beams, is estimated by the generate worker, which knows the model.
    """
    options = params.options
    if not isinstance(params.prompt, str):
        require_ids(params.prompt, files.vocabulary.size, "prompt")
    require_prompt("prompt", params.prompt, settings)
    require_ids(tuple(options.logit_bias), files.vocabulary.size, "logit_bias")
    caps = [("max_tokens", "budget_max", BUDGET_MAX), ("n", "n_max", settings.requests.n_max)]
    if options.algorithm != "sample":
        require_beams(options.beams, settings)
        caps.append(("beams", "vocabulary", files.vocabulary.size))
    if files.context_tokens is not None:
        caps.append(("max_tokens", "context_tokens", files.context_tokens))
    for path, limit, cap in caps:
        require_at_most(path, getattr(options, path), limit, cap)


def require_prompt(path: str, prompt: str | tuple[int, ...], settings: Settings) -> None:
    """Raise RequestOverLimit where an operator allows shorter prompts only."""
    if settings.requests.prompt_chars_max:
        require_at_most(path, len(prompt), "prompt_chars_max", settings.requests.prompt_chars_max)


def require_beams(beams: int, settings: Settings) -> None:
    """Raise RequestOverLimit where an operator allows fewer beams."""
    if settings.requests.beams_max:
        require_at_most("beams", beams, "beams_max", settings.requests.beams_max)


def require_at_most(path: str, value: float, limit: str, cap: float) -> None:
    """Raise RequestOverLimit where the value of a field is over a limit."""
    if value > cap:
        raise RequestOverLimit(path, limit, cap)


def require_ids(ids: Sequence[int], size: int, path: str) -> None:
    """Raise InvalidRequest for an id that the model does not have."""
    for number, token in enumerate(ids):
        if not 0 <= token < size:
            raise InvalidRequest(((f"{path}.{number}", f"the model has the ids 0 to {size - 1}"),))


@dataclass(frozen=True, slots=True)
class DecodeParams:
    """A matrix with a column for each label, or a scorer. For the fields see `DecodeJob`."""

    spec: LabelsSpec
    log_probs: tuple[tuple[float | None, ...], ...]
    beams: int | Literal["exact"]
    alpha_min: float
    gamma: float
    timeout_s: float | None
    priority: Priority = "interactive"
    scorer: ScorerTask | None = None

    @property
    def weight(self) -> int:
        """The request's weight in the queue. It is the number of concurrent rows times their length."""
        # An exact decoding counts as one row, whatever the size of its automaton.
        return self.rows * (1 if self.beams == "exact" else self.beams)

    @property
    def rows(self) -> int:
        """The length of the sequence. A scorer writes an end, too."""
        return len(self.log_probs) if self.scorer is None else len(self.scorer.prefix) + self.scorer.max_tokens


def check_decode_limits(params: DecodeParams, settings: Settings) -> None:
    """Raise RequestOverLimit if length, matrix or beams exceed a limit.

    The worker estimates the memory of a search by beams. Here each of its steps keeps a number for each row.
    """
    path, labels = "log_probs" if params.scorer is None else "max_tokens", len(params.spec.labels)
    require_at_most(path, params.rows, "matrix_rows_max", settings.requests.matrix_rows_max)
    require_at_most(path, params.rows * labels, "matrix_cells_max", settings.requests.matrix_cells_max)
    if params.beams != "exact":
        require_beams(params.beams, settings)
        require_at_most("beams", params.rows * params.beams, "matrix_states_max", settings.requests.matrix_states_max)


def check_paths(rows: int, states: int, settings: Settings) -> None:
    """Raise RequestOverLimit if the search needs too many paths. Their number is rows times the automaton's states."""
    require_at_most("log_probs", rows * states, "matrix_states_max", settings.requests.matrix_states_max)
