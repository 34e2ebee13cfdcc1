"""What crosses a process boundary: jobs, results, events and keys.

A job's body is JSON, signed where a secret is set, so that a worker takes jobs of its own service alone. The keys of
the store are derived from the canonical form of a constraint. The names that a caller gave to propositions are put back
into results here.
"""

from __future__ import annotations

from app.messages.bodies import (
    CheckResponse,
    CompiledEventBody,
    CompileResponse,
    DecodeResponse,
    GeneratedBody,
    PolicyResponse,
    RestartEventBody,
    StepEventBody,
    Warnings,
)
from app.messages.caller_names import named_decoding, named_generation, named_words
from app.messages.jobs import (
    CheckJob,
    CheckJobResult,
    CompileJob,
    CompileJobResult,
    DecodeJob,
    DecodeJobResult,
    DescribeJob,
    DescribeJobResult,
    ExplainJob,
    ExplainJobResult,
    Failure,
    GenerateJob,
    GenerateJobResult,
    Job,
    OwnedJob,
    PolicyJob,
    PolicyJobResult,
    Progress,
    RestartMessage,
    Result,
    StepMessage,
    TokenizeJob,
    TokenizeJobResult,
    dump,
    failure_of,
    is_expected_error,
    load,
    read_signed,
)
from app.messages.keys import (
    FORMAT,
    HASH,
    KEY_PREFIX,
    automaton_hash,
    automaton_key,
    charge_key,
    compile_job_key,
    explain_job_key,
    explanation_key,
    failure_key,
    idempotent_job_key,
    probe_key,
    request_id,
    slots_key,
    store_share_key,
    tokens_key,
    window_key,
)
from app.messages.parts import (
    ALGORITHM_DEFAULT,
    ALTERNATIVES_MAX,
    CONFIG,
    USED_BY,
    AlternativeBody,
    AnsweredCallBody,
    AnsweredFunctionBody,
    AnswerMessageBody,
    CaptureBody,
    ChoiceBody,
    ConjunctBody,
    GenerationOptions,
    LabelStepBody,
    Priority,
    PromptTokenBody,
    Reason,
    RejectedTokenBody,
    ScorerTask,
    StepRowBody,
    StrictModel,
    TimingsBody,
    TokenStepBody,
    UsageBody,
    ViolationBody,
    WordBody,
)
from app.messages.places import RequestPlace, place_of
from app.messages.policies import BrokenRuleBody, PolicyEvent, PolicyStateBody
from app.messages.readiness import NotReadyCode, NotReadyReason
from app.messages.signing import VERSION, Signatures, sign, signing_keys, verify
from app.messages.suggestions import (
    WarningBody,
    approximation_warnings,
    constraint_warnings,
    grammar_warnings,
    request_edits,
    suggested,
)

__all__ = [
    "ALGORITHM_DEFAULT", "ALTERNATIVES_MAX", "CONFIG", "FORMAT", "HASH", "KEY_PREFIX", "USED_BY", "VERSION",
    "AlternativeBody", "AnswerMessageBody", "AnsweredCallBody", "AnsweredFunctionBody", "BrokenRuleBody",
    "CaptureBody", "CheckJob", "CheckJobResult", "CheckResponse", "ChoiceBody", "CompileJob", "CompileJobResult",
    "CompileResponse", "CompiledEventBody", "ConjunctBody", "DecodeJob", "DecodeJobResult", "DecodeResponse",
    "DescribeJob", "DescribeJobResult", "ExplainJob", "ExplainJobResult", "Failure", "GenerateJob",
    "GenerateJobResult", "GeneratedBody", "GenerationOptions", "Job", "LabelStepBody", "NotReadyCode",
    "NotReadyReason", "OwnedJob", "PolicyEvent", "PolicyJob", "PolicyJobResult", "PolicyResponse",
    "PolicyStateBody", "Priority", "Progress", "PromptTokenBody", "Reason", "RejectedTokenBody", "RequestPlace",
    "RestartEventBody", "RestartMessage", "Result", "ScorerTask", "Signatures", "StepEventBody", "StepMessage",
    "StepRowBody", "StrictModel", "TimingsBody", "TokenStepBody", "TokenizeJob", "TokenizeJobResult", "UsageBody",
    "ViolationBody", "WarningBody", "Warnings", "WordBody", "approximation_warnings", "automaton_hash",
    "automaton_key", "charge_key",
    "compile_job_key",
    "constraint_warnings", "dump", "explain_job_key", "explanation_key", "failure_key", "failure_of",
    "grammar_warnings", "idempotent_job_key", "is_expected_error", "load", "named_decoding", "named_generation",
    "named_words", "place_of", "probe_key", "read_signed", "request_edits", "request_id", "sign", "signing_keys",
    "slots_key", "store_share_key", "suggested", "tokens_key", "verify", "window_key",
]  # fmt: skip
