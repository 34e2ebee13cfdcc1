"""Compiles and explains constraints for the served models, and checks texts.

Every compilation and explanation runs in the sandbox, because a constraint can make it large. This process only looks
up tables of bounded size.
"""

from __future__ import annotations

import contextlib
import logging

from app.automaton_cache import Decoder, open_decoder, summary
from app.errors import AutomatonMissing, JobFailed, ModelChanged
from app.messages import (
    CheckJob,
    CompileJob,
    CompileJobResult,
    DescribeJob,
    DescribeJobResult,
    ExplainJob,
    ExplainJobResult,
    Failure,
    PolicyJob,
    PolicyJobResult,
    Progress,
    automaton_key,
    dump,
    explanation_key,
    failure_key,
    failure_of,
    read_signed,
    sign,
)
from app.models import model_sources, open_model_files
from app.settings import Settings
from app.worker.handlers.base import Context, Handler, dispatcher, load_constraint, stall_reason
from app.worker.handlers.check import TextChecker
from app.worker.sandbox.client import Sandbox
from app.worker.sandbox.compile_task import (
    TARGET,
    SandboxResult,
    compile_request,
    explain_request,
    pack_setup,
    policy_request,
    read_answer,
)
from compiler.diagnostics import ConstraintExplanation, with_caller_names
from compiler.spec import spec_from_json
from compiler.vocab import Vocabulary

log = logging.getLogger(__name__)


def open_handler(settings: Settings) -> Handler:
    """Read the models' vocabularies and start the sandbox, once for all jobs."""
    files = [open_model_files(source.location) for source in model_sources(settings)]
    compiler = CompileHandler(settings, *(each.vocabulary for each in files))

    handle = dispatcher("compile", {
        CompileJob: compiler.compile, ExplainJob: compiler.explain, DescribeJob: compiler.describe,
        CheckJob: compiler.check, PolicyJob: compiler.apply_policy,
    })  # fmt: skip

    def health_problem() -> str:
        overdue_s = compiler.sandbox.overdue_s
        return stall_reason("a compilation is past all its limits", overdue_s, settings.process.stall_timeout_s)

    return Handler(handle, close=compiler.sandbox.close, health_problem=health_problem)


class CompileHandler:
    """Compiles for the vocabularies of all models."""

    def __init__(self, settings: Settings, *vocabularies: Vocabulary) -> None:
        self._settings = settings
        fingerprints = [vocabulary.fingerprint for vocabulary in vocabularies]
        self._decoders = {fingerprint: open_decoder(settings, fingerprint) for fingerprint in fingerprints}
        self.sandbox = Sandbox(TARGET, pack_setup(settings, *vocabularies), settings.limits)
        self.check = TextChecker(settings, self._decoders[fingerprints[0]], self._run, self._compile).check

    @property
    def vocabularies(self) -> tuple[str, ...]:
        """The fingerprints of the vocabularies."""
        return tuple(self._decoders)

    def _decoder(self, vocabulary: str) -> Decoder:
        """The decoder of a job's vocabulary. Raises ModelChanged where no model here has it."""
        if vocabulary not in self._decoders:
            raise ModelChanged("this compile worker has no such vocabulary: give all processes the same ABS_MODEL")
        return self._decoders[vocabulary]

    def compile(self, job: CompileJob, context: Context) -> CompileJobResult:
        """Compile and store an automaton, unless it is stored. A cached failure is raised again."""
        decode = self._decoder(job.vocabulary)
        with contextlib.suppress(AutomatonMissing):
            stored = load_constraint(job.automaton, decode, context, self._settings.retention.automaton_ttl_s)
            return summary(job.automaton, stored, cached=True, compile_ms=0.0)
        key = failure_key(job.automaton, job.spec, self._settings.limits)
        context.progress(Progress("compile"))
        request = compile_request(job.automaton, dict(job.spec), job.vocabulary)
        result, data = self._compile(request, key, context, job.owner)
        assert isinstance(result, CompileJobResult)
        context.save(automaton_key(job.automaton), data, self._settings.retention.automaton_ttl_s, job.owner)
        return result

    def explain(self, job: ExplainJob, context: Context) -> ExplainJobResult:
        """Explain and store. Raises AutomatonMissing where the store has dropped the automaton."""
        self._decoder(job.vocabulary)
        stored = context.load(automaton_key(job.automaton))
        if stored is None:
            raise AutomatonMissing("the automaton is no longer stored; send the constraint again")
        result, _ = self._run(explain_request(job.automaton, stored, job.vocabulary), context)
        assert isinstance(result, ExplainJobResult)
        key = explanation_key(job.automaton)
        signed = sign(self._settings.auth.secret, key, dump(result))
        context.save(key, signed, self._settings.retention.automaton_ttl_s, job.owner)
        return result

    def apply_policy(self, job: PolicyJob, context: Context) -> PolicyJobResult:
        """Apply a policy to a conversation."""
        result, _ = self._run(policy_request(job), context)
        assert isinstance(result, PolicyJobResult)
        return result

    def describe(self, job: DescribeJob, context: Context) -> DescribeJobResult:
        """The sizes of the compiled constraint and any explanation of it."""
        assert job.spec is not None  # a request for a description carries the constraint
        sizes = self.compile(
            CompileJob(job.automaton, job.spec, job.deadline, owner=job.owner, vocabulary=job.vocabulary), context
        )
        explanation = self._explanation(job, context) if job.explain else None
        return DescribeJobResult.of(context.compilation or sizes, explanation, job.warnings)

    def _explanation(self, job: DescribeJob, context: Context) -> ConstraintExplanation | None:
        assert job.spec is not None
        key = explanation_key(job.automaton)
        data = context.load(key, self._settings.retention.automaton_ttl_s) or b""
        stored = read_signed(self._settings.auth.secret, key, data)
        try:
            result = stored if isinstance(stored, ExplainJobResult) else self.explain(
                ExplainJob(job.automaton, job.deadline, owner=job.owner, vocabulary=job.vocabulary), context
            )
        except (AutomatonMissing, JobFailed) as error:
            if not error.facts.explanation_optional:
                raise
            return None
        return with_caller_names(result.explanation, spec_from_json(job.spec), job.names)

    def _compile(
        self, request: bytes, key: str, context: Context, owner: str = ""
    ) -> tuple[SandboxResult, bytes]:
        """Run a compilation in the sandbox. A failure that would recur is stored under the key, and raised again."""
        data = context.load(key)
        if data is not None:
            failure = read_signed(self._settings.auth.secret, key, data)
            if isinstance(failure, Failure):
                raise failure.as_error()
            context.discard(key, data)  # its seal does not fit, so another process wrote it
        try:
            return self._run(request, context)
        except JobFailed as failed:
            if failed.facts.cache_s is not None:
                signed = sign(self._settings.auth.secret, key, dump(failure_of(failed)))
                context.save(key, signed, failed.facts.cache_s, owner)
            raise

    def _run(self, request: bytes, context: Context) -> tuple[SandboxResult, bytes]:
        """Run a request in the sandbox. Raises the sandbox's errors, and JobFailed for those inside it."""
        result, data = read_answer(self.sandbox.run(request, context.cancelled))
        if isinstance(result, Failure):
            if data:  # only a bug has a text for the log
                log.error("a job in the sandbox failed: %s", data.decode())
            raise result.as_error()
        return result, data
