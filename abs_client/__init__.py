"""The Python client of ABS Server.

    from abs_client import Client, F, Keywords, Regex

    with Client() as client:  # ABS_BASE_URL, ABS_API_KEY
        result = client.generate("sentence:", F("dog") & Keywords("ball") & Regex(r"[A-Za-z ]+"), max_tokens=24)
        print(result.text)

The package imports httpx2 and nothing of the service. Modules with an underscore are private.
"""

from abs_client._requests import DecodeOptions, GenerateOptions
from abs_client._retry import Retry
from abs_client.async_client import AsyncClient
from abs_client.client import Client, Job, Stream
from abs_client.constraints import AllOf, AnyOf, Constraint, LabelledConstraint, Not, RawConstraint, constraint_of
from abs_client.errors import (
    AbsError,
    AccessDeniedError,
    BudgetTooSmallError,
    BusyError,
    ConnectionFailedError,
    ConstraintError,
    ConstraintSyntaxError,
    ConstraintTooLargeError,
    ConstraintUnsatisfiableError,
    ConstraintUnsupportedError,
    DeadlineExceededError,
    DeadlineUnreachableError,
    IdempotencyMismatchError,
    InvalidRequestError,
    InvalidResponseError,
    JobCancelledError,
    NotFoundError,
    NotReadyError,
    OutOfMemoryError,
    PromptTooLongError,
    PromptViolationError,
    QueueFullError,
    RateLimitError,
    RequestError,
    RequestTooLargeError,
    ServerError,
    ServiceUnavailableError,
    UndecidedError,
    UnknownAutomatonError,
    UnknownJobError,
    UnknownModelError,
    WorkerLostError,
)
from abs_client.events import Beam, Compilation, Done, Event, RejectedToken, Restart, Step
from abs_client.explanations import CompileWarning, ExplainedLetter, ExplainedState, Explanation, State, Transition
from abs_client.forms import (
    NGRAM_GAP,
    SENTENCE_GAP,
    WORD_GAP,
    Choice,
    Concept,
    DfaConstraint,
    GrammarConstraint,
    Infill,
    JsonSchema,
    Keywords,
    Length,
    Regex,
    SequenceOf,
    capture,
    free,
    gap,
    one_of,
    optional,
    repeat,
    token,
)
from abs_client.jobs import AsyncJob, AsyncStream
from abs_client.ltlf import (
    EOS,
    FALSE,
    LAST,
    NOMATCH,
    TRUE,
    WX,
    F,
    Formula,
    G,
    H,
    Iff,
    Implies,
    Ltlf,
    M,
    Match,
    NamedProposition,
    O,
    R,
    S,
    U,
    W,
    Word,
    X,
    Y,
)
from abs_client.policies import BrokenRule, Policy, PolicyResult, PolicyState
from abs_client.results import (
    Alternative,
    Automaton,
    Capture,
    CheckResult,
    CompileResult,
    ConjunctCheck,
    DecodeResult,
    GeneratedText,
    GenerateResult,
    JobState,
    LabelStep,
    ModelCard,
    Readiness,
    Result,
    Timings,
    TokenStep,
    TracedWord,
    Usage,
    Violation,
)
from abs_client.rows import GenerateRow
from abs_client.suggestions import apply_suggestion

__all__ = [
    "EOS", "FALSE", "LAST", "NGRAM_GAP", "NOMATCH", "SENTENCE_GAP", "TRUE", "WORD_GAP", "WX", "AbsError",
    "AccessDeniedError", "AllOf", "Alternative", "AnyOf", "AsyncClient", "AsyncJob", "AsyncStream", "Automaton", "Beam",
    "BrokenRule", "BudgetTooSmallError", "BusyError", "Capture", "CheckResult", "Choice", "Client", "Compilation",
    "CompileResult", "CompileWarning", "Concept", "ConjunctCheck", "ConnectionFailedError", "Constraint",
    "ConstraintError", "ConstraintSyntaxError", "ConstraintTooLargeError", "ConstraintUnsatisfiableError",
    "ConstraintUnsupportedError", "DeadlineExceededError", "DeadlineUnreachableError", "DecodeOptions", "DecodeResult",
    "DfaConstraint", "Done", "Event", "ExplainedLetter", "ExplainedState", "Explanation", "F", "Formula", "G",
    "GenerateOptions", "GenerateResult", "GenerateRow", "GeneratedText", "GrammarConstraint", "H",
    "IdempotencyMismatchError", "Iff", "Implies", "Infill", "InvalidRequestError", "InvalidResponseError", "Job",
    "JobCancelledError", "JobState", "JsonSchema", "Keywords", "LabelStep", "LabelledConstraint", "Length", "Ltlf", "M",
    "Match", "ModelCard", "NamedProposition", "Not", "NotFoundError", "NotReadyError", "O", "OutOfMemoryError",
    "Policy", "PolicyResult", "PolicyState", "PromptTooLongError", "PromptViolationError", "QueueFullError", "R",
    "RateLimitError", "RawConstraint", "Readiness", "Regex", "RejectedToken", "RequestError", "RequestTooLargeError",
    "Restart", "Result", "Retry", "S", "SequenceOf", "ServerError", "ServiceUnavailableError", "State", "Step",
    "Stream", "Timings", "TokenStep", "TracedWord", "Transition", "U", "UndecidedError", "UnknownAutomatonError",
    "UnknownJobError", "UnknownModelError", "Usage", "Violation", "W", "Word", "WorkerLostError", "X", "Y",
    "apply_suggestion", "capture", "constraint_of", "free", "gap", "one_of", "optional", "repeat", "token",
]  # fmt: skip
