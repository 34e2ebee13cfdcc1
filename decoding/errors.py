"""All errors of a generation, split by who can fix them.

    DecodeError
    |-- GenerationInvalid       the caller's request
    |   |-- OptionsInvalid        an option is out of its range; names the field
    |   |-- PromptEmpty           nothing to continue, and the model names no token to begin with
    |   |-- PromptTooLong         prompt and budget together pass the model's context
    |   |-- LengthImpossible      no sequence of the requested length satisfies the constraint; lists lengths that do
    |   |-- RequestTooLarge       a request could need more memory than one request may take
    |   `-- Cancelled             the caller no longer waits
    |-- MemoryShort             the model's device
    |   |-- OutOfMemory           too little memory for a request that ran alone; carries the bytes it may need
    |   `-- MemoryTaken           too little memory while other requests hold some; carries `retry_after_s`
    |-- ModelError              the operator's model
    |   |-- ModelUnavailable      the path or name holds no causal language model that can be loaded
    |   |-- GroupLost             a process that holds a part of the model has ended
    |   |-- ModelOutputInvalid    the model answers with NaN, or with no finite log-prob
    |   `-- VocabularyMismatch    the automaton was compiled for a vocabulary of another size
    `-- BrokenInvariant         us; none of it may ever become an answer
        |-- SearchExhausted       every row died: the automaton's distances are wrong
        `-- ReplayRejected        the finished tokens do not replay with the states and sums of the search
"""

from __future__ import annotations

from dataclasses import replace

from compiler.errors import CANCELLED, INTERNAL, UNSATISFIABLE, ErrorFacts

_INVALID = ErrorFacts(422, "invalid_request", "The request is invalid", outcome="refused")


class DecodeError(Exception):
    """Root of this package's errors.

    fields  attributes of the error; `facts` says which of them a caller may see
    """

    facts = INTERNAL

    def __init__(self, message: str = "", **fields: object) -> None:
        super().__init__(message)
        vars(self).update(fields)


class GenerationInvalid(DecodeError):
    """The caller's request is at fault. The message is meant for the caller to read."""


class OptionsInvalid(GenerationInvalid):
    """A search option is out of its range. `field` names it ("beams")."""

    facts = replace(_INVALID, title="An option is out of its range", fields=("field",))

    field: str

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field} must be {expected}", field=field)


class PromptEmpty(GenerationInvalid):
    """The prompt holds no token. The model names no token that begins a text."""

    facts = replace(_INVALID, title="The prompt is empty")


class PromptTooLong(GenerationInvalid):
    """Prompt and budget do not fit in the model's context. All three are counted in tokens.

    Clients that shorten a conversation look for the status and code of OpenAI, or for words of the message: those of
    OpenAI ("This model's maximum context length is") or of Anthropic ("prompt is too long").
    """

    facts = ErrorFacts(
        400, "context_length_exceeded", "The prompt and max_tokens do not fit the model",
        ("prompt_tokens", "max_tokens", "context_length"), outcome="refused",
    )

    prompt_tokens: int
    max_tokens: int
    context_length: int

    def __init__(self, prompt_tokens: int, max_tokens: int, context_length: int) -> None:
        super().__init__(
            f"the prompt is too long: {prompt_tokens} tokens, with max_tokens = {max_tokens}. This model's maximum "
            f"context length is {context_length} tokens: shorten the prompt or lower max_tokens",
            prompt_tokens=prompt_tokens, max_tokens=max_tokens, context_length=context_length,
        )


class LengthImpossible(GenerationInvalid):
    """The constraint accepts no sequence of exactly `rows` labels. `lengths`: the nearest it accepts, at most two."""

    facts = replace(UNSATISFIABLE, fields=("rows", "lengths"), outcome="infeasible", cache_s=None)

    rows: int
    lengths: tuple[int, ...]

    def __init__(self, rows: int, lengths: tuple[int, ...]) -> None:
        which = " and ".join(map(str, lengths))
        near = f"the nearest lengths that do: {which}" if lengths else "nor does any of another length"
        message = f"no sequence of exactly {rows} labels satisfies the constraint; {near}"
        super().__init__(message, rows=rows, lengths=lengths)


class RequestTooLarge(GenerationInvalid):
    """A request may need more memory than one request may take. Amounts are in bytes."""

    facts = ErrorFacts(
        422, "request_too_large", "The request may need more memory than there is", ("needed_bytes", "memory_bytes"),
        outcome="refused",
    )

    needed_bytes: int
    memory_bytes: int

    def __init__(self, needed_bytes: int, memory_bytes: int) -> None:
        super().__init__(
            f"the request may need {-(-needed_bytes >> 20)} MiB, more than the {memory_bytes >> 20} MiB that one "
            "request may take: lower max_tokens, beams or n, or shorten the prompt; the operator may raise "
            "ABS_GENERATION_MEMORY_BYTES, of which one request may take seven eighths",
            needed_bytes=needed_bytes, memory_bytes=memory_bytes,
        )


class Cancelled(GenerationInvalid):
    """The caller no longer waits for the answer."""

    facts = CANCELLED


class MemoryShort(DecodeError):
    """The model's device has too little memory."""


class OutOfMemory(MemoryShort):
    """A request that ran alone ran out of the device's memory. `needed_bytes` is the most that it may hold."""

    facts = ErrorFacts(
        507, "out_of_memory", "The model's device has too little memory for this request", ("needed_bytes",)
    )

    needed_bytes: int

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(
            f"the model's device ran out of memory over this request alone, which may need {needed_bytes >> 20} MiB: "
            "fewer beams, a lower max_tokens or a shorter prompt may fit; the operator may free memory on the device, "
            "or lower ABS_GENERATION_MEMORY_BYTES to have such requests refused at once",
            needed_bytes=needed_bytes,
        )


class MemoryTaken(MemoryShort):
    """Other requests hold the memory that a request needs. It needs the memory before it begins, or for its check."""

    facts = ErrorFacts(
        503, "memory_taken", "Other requests hold the memory of the model's device", ("retry_after_s",), retry_after_s=5
    )

    retry_after_s: int

    def __init__(self) -> None:
        message = "the memory of the model's device is taken by other requests; try again when some have ended"
        super().__init__(message, retry_after_s=5)


class ModelError(DecodeError):
    """The model that the operator chose is at fault."""


class ModelUnavailable(ModelError):
    """The model's path or name leads to no causal language model."""

    facts = ErrorFacts(
        503, "model_unavailable", "The model cannot be used; the log says why", ("retry_after_s",), private=True,
        retry_after_s=30,
    )


class GroupLost(ModelError):
    """A process that shares the model has ended, or its pass failed."""


class ModelOutputInvalid(ModelError):
    """The model returned NaN, or no finite log-prob, for some prefix."""


class VocabularyMismatch(ModelError):
    """The automaton has another number of token ids than the model."""

    automaton_size: int
    model_size: int

    def __init__(self, automaton_size: int, model_size: int) -> None:
        message = f"the automaton was compiled for {automaton_size} token ids, the model has {model_size}"
        super().__init__(message, automaton_size=automaton_size, model_size=model_size)


class BrokenInvariant(DecodeError):
    """A bug in this package."""


class SearchExhausted(BrokenInvariant):
    """No row could be expanded. The automaton's distances promise acceptance within the budget."""


class ReplayRejected(BrokenInvariant):
    """An answer failed its independent check: it must never reach a caller."""

    facts = ErrorFacts(500, "replay_rejected", "An answer failed its final check and was withheld")
