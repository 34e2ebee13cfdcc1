"""Every way a generation can fail, split by blame.

    DecodeError
    |-- RequestError            the caller's request
    |   |-- OptionsInvalid        an option is out of its range; names the field
    |   |-- PromptEmpty           nothing to continue, and the model names no token to begin with
    |   |-- PromptTooLong         prompt and budget together pass the model's context
    |   |-- BudgetTooSmall        no text this short satisfies the constraint; says how long it must be
    |   |-- LengthImpossible      no sequence of the requested length satisfies the constraint; lists lengths that do
    |   |-- RequestTooLarge       a request could need more memory than all requests together are given
    |   `-- Cancelled             the caller no longer waits
    |-- MemoryShort             the model's device
    |   |-- OutOfMemory           it ran out of memory over a request that had it to itself; says how much that may need
    |   `-- MemoryTaken           it has none left for a request while others hold it; carries `retry_after_s`
    |-- ModelError              the operator's model
    |   |-- ModelUnavailable      the path or name holds no causal language model that can be loaded
    |   |-- ModelOutputInvalid    the model answers with NaN, or with no finite log-prob
    |   `-- VocabularyMismatch    the automaton was compiled for a vocabulary of another size
    `-- InternalError           us; none of it may ever become an answer
        |-- SearchExhausted       every row died: the automaton's distances promise what no token does
        `-- ReplayRejected        the finished tokens do not replay as the search says
"""

from __future__ import annotations


class DecodeError(Exception):
    """Root of this package's errors."""


class RequestError(DecodeError):
    """The caller's request is at fault. The message is meant for the caller to read."""


class OptionsInvalid(RequestError):
    """A search option is out of its range. `field` names it ("beams")."""

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field} must be {expected}")
        self.field = field


class PromptEmpty(RequestError):
    """The prompt holds no token, and the model names none that begins a text."""


class PromptTooLong(RequestError):
    """Prompt and budget do not fit in the model's context; all three are counted in tokens."""

    def __init__(self, prompt_tokens: int, max_tokens: int, context_length: int) -> None:
        super().__init__(
            f"a prompt of {prompt_tokens} tokens and max_tokens = {max_tokens} pass the model's context of "
            f"{context_length} tokens"
        )
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.context_length = context_length


class BudgetTooSmall(RequestError):
    """The constraint needs more tokens than the budget grants; `min_tokens` is None where no budget is enough."""

    def __init__(self, min_tokens: int | None, max_tokens: int) -> None:
        needs = "cannot be met in any number of tokens" if min_tokens is None else f"needs at least {min_tokens} tokens"
        super().__init__(f"the constraint {needs}, max_tokens is {max_tokens}")
        self.min_tokens = min_tokens
        self.max_tokens = max_tokens


class LengthImpossible(RequestError):
    """The constraint accepts no sequence of exactly `rows` labels. `lengths`: the nearest it accepts, at most two."""

    def __init__(self, rows: int, lengths: tuple[int, ...]) -> None:
        which = " and ".join(map(str, lengths))
        near = f"the nearest lengths that do: {which}" if lengths else "nor does any of another length"
        super().__init__(f"no sequence of exactly {rows} labels satisfies the constraint; {near}")
        self.rows = rows
        self.lengths = lengths


class RequestTooLarge(RequestError):
    """Prompt, rows and budget may come to hold more than the engine has for all requests together; in bytes."""

    def __init__(self, needed_bytes: int, memory_bytes: int) -> None:
        super().__init__(
            f"the prompt and its beams may need {needed_bytes >> 20} MiB, more than the {memory_bytes >> 20} MiB that "
            "all requests share; fewer beams, a lower max_tokens or a shorter prompt would fit"
        )
        self.needed_bytes = needed_bytes
        self.memory_bytes = memory_bytes


class Cancelled(RequestError):
    """The caller went away before the answer was found."""


class MemoryShort(DecodeError):
    """The model's device has less memory than was thought."""


class OutOfMemory(MemoryShort):
    """A request ran out of the device's memory though no other was running; `needed_bytes` is what it may come to hold.

    Its caller can ask for less, and the operator can see to it that there is more, or that it is refused at once.
    """

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(
            f"the model's device ran out of memory over this request alone, which may need {needed_bytes >> 20} MiB: "
            "fewer beams, a lower max_tokens or a shorter prompt may fit; the operator may free memory on the device, "
            "or lower ABS_GENERATION_MEMORY_BYTES to have such requests refused at once"
        )
        self.needed_bytes = needed_bytes


class MemoryTaken(MemoryShort):
    """The device has no memory left for what a request needs before it begins, or for its check: others hold it."""

    def __init__(self) -> None:
        super().__init__("the memory of the model's device is taken by other requests; try again when some have ended")
        self.retry_after_s = 5


class ModelError(DecodeError):
    """The model that the operator chose is at fault."""


class ModelUnavailable(ModelError):
    """The model's path or name is wrong, or what it names is not a causal language model."""


class ModelOutputInvalid(ModelError):
    """The model gave NaN, or no finite log-prob at all, for some prefix."""


class VocabularyMismatch(ModelError):
    """The automaton reads another number of token ids than the model writes."""

    def __init__(self, automaton_size: int, model_size: int) -> None:
        super().__init__(f"the automaton was compiled for {automaton_size} token ids, the model has {model_size}")
        self.automaton_size = automaton_size
        self.model_size = model_size


class InternalError(DecodeError):
    """A bug of ours."""


class SearchExhausted(InternalError):
    """No row found a token although acceptance was within reach, by the automaton's distances."""


class ReplayRejected(InternalError):
    """An answer failed its independent check: it must never reach a caller."""
