"""The Python client of ABS Server: text from a language model that satisfies a constraint, within a token budget.

    from abs_client import Client, F, Keywords, Regex

    with Client() as client:  # ABS_BASE_URL, ABS_API_KEY
        result = client.generate("sentence:", F("dog") & Keywords("ball") & Regex(r"[A-Z][a-z ]+\\."), max_tokens=24)
        print(result.text)

Imports nothing of the service's own code.
"""

from abs_client.async_client import AsyncClient, AsyncJob, AsyncStream
from abs_client.client import Client, Job, Stream
from abs_client.constraints import AllOf, AnyOf, Constraint, Labelled, Not, Raw, constraint_of
from abs_client.errors import (
    AbsError,
    AccessRefused,
    AnswerInvalid,
    BudgetTooSmall,
    Busy,
    Cancelled,
    ConnectionFailed,
    ConstraintError,
    ConstraintSyntax,
    ConstraintTooLarge,
    ConstraintUnsatisfiable,
    ConstraintUnsupported,
    DeadlineExceeded,
    DeadlineUnreachable,
    IdempotencyMismatch,
    InvalidRequest,
    NotFound,
    NotReady,
    OutOfMemory,
    PromptTooLong,
    PromptViolates,
    QueueFull,
    RateLimited,
    RequestError,
    ServerError,
    TooLarge,
    Unavailable,
    UnknownAutomaton,
    UnknownJob,
    UnknownModel,
    WorkerLost,
)
from abs_client.events import Beam, Compiled, Done, Event, RejectedToken, Restart, Step
from abs_client.forms import (
    NGRAM_GAP,
    SENTENCE_GAP,
    WORD_GAP,
    Choice,
    Concept,
    Dfa,
    Infill,
    JsonSchema,
    Keywords,
    Length,
    Regex,
    gap,
)
from abs_client.formulas import (
    EOS,
    FALSE,
    LAST,
    NOMATCH,
    TRUE,
    WX,
    F,
    Formula,
    G,
    Iff,
    Implies,
    Ltlf,
    M,
    Match,
    R,
    U,
    W,
    Word,
    X,
)
from abs_client.pieces import Answer, Explanation
from abs_client.results import (
    Automaton,
    CheckResult,
    CompileResult,
    DecodeResult,
    GenerateResult,
    JobState,
    ModelCard,
    Readiness,
)
from abs_client.retries import Retry

__all__ = [
    "EOS", "FALSE", "LAST", "NGRAM_GAP", "NOMATCH", "SENTENCE_GAP", "TRUE", "WORD_GAP", "WX", "AbsError",
    "AccessRefused", "AllOf", "Answer", "AnswerInvalid", "AnyOf", "AsyncClient", "AsyncJob", "AsyncStream",
    "Automaton", "Beam", "BudgetTooSmall", "Busy", "Cancelled", "CheckResult", "Choice", "Client", "CompileResult",
    "Compiled", "Concept", "ConnectionFailed", "Constraint", "ConstraintError", "ConstraintSyntax",
    "ConstraintTooLarge", "ConstraintUnsatisfiable", "ConstraintUnsupported", "DeadlineExceeded", "DeadlineUnreachable",
    "DecodeResult",
    "Dfa", "Done", "Event", "Explanation", "F", "Formula", "G", "GenerateResult", "IdempotencyMismatch", "Iff",
    "Implies", "Infill", "InvalidRequest", "Job", "JobState", "JsonSchema", "Keywords", "Labelled", "Length", "Ltlf",
    "M", "Match", "ModelCard", "Not", "NotFound", "NotReady", "OutOfMemory", "PromptTooLong", "PromptViolates",
    "QueueFull", "R", "RateLimited", "Raw", "Readiness", "Regex", "RejectedToken", "RequestError", "Restart", "Retry",
    "ServerError", "Step", "Stream", "TooLarge", "U", "Unavailable", "UnknownAutomaton", "UnknownJob",
    "UnknownModel", "W", "Word", "WorkerLost", "X", "constraint_of", "gap",
]  # fmt: skip
