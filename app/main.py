"""Creates the FastAPI application from settings. It also has the entry point of the command `abs`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from app import __version__
from app.anthropic.errors import MESSAGES, MessagesErrorBody, messages_error_response
from app.anthropic.events import MESSAGE_EVENTS
from app.anthropic.routes import router as messages
from app.api.dependencies import Components, components_of
from app.api.documented_security import document_security
from app.api.errors import PROBLEM_TYPE, refusal
from app.api.jobs import router as jobs
from app.api.middleware.body import StrictBody
from app.api.middleware.request_log import RequestLogMiddleware
from app.api.middleware.security import SecurityMiddleware
from app.api.near_misses import path_hint
from app.api.openapi import component_schemas
from app.api.operations import StorageProbe
from app.api.operations import router as operations
from app.api.playground import router as page
from app.api.routes import router
from app.api.schemas import ProblemBody
from app.auth import ROUTE_SCOPES, KeyRing, Limiter, method_not_allowed
from app.errors import AppError
from app.messages import FORMAT, CompiledEventBody, RestartEventBody, StepEventBody
from app.models import open_scorers, queues_of
from app.observability import metrics, tracing
from app.openai.errors import PREFIX, ErrorFormat, document_error_body, document_errors, error_response
from app.openai.native import router as native
from app.openai.routes import router as openai
from app.openai.token_routes import router as tokens
from app.service import ServedModels
from app.settings import Settings, read_settings
from app.wiring import handler_opener, open_broker, open_limiter, open_store, require_engines, require_single_model
from app.worker.loop import serve
from compiler.errors import CompileError

TITLE = "ABS Server"
DESCRIPTION = "Automata-guided beam search: text from a language model that satisfies a constraint within a budget."


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application. Brokers, stores and embedded workers start and stop with its lifespan."""
    chosen = settings or read_settings()
    require_engines(chosen, chosen.process.embedded_workers)
    require_single_model(chosen, queues_of(chosen, chosen.process.embedded_workers))
    # Without keys there are no owners whose requests could be counted.
    ring = KeyRing(Path(chosen.auth.keys_file)) if chosen.auth.keys_file else None
    limiter = open_limiter(chosen) if ring else None
    app = FastAPI(
        title=TITLE, description=DESCRIPTION, version=__version__, lifespan=lambda app: _lifespan(app, chosen, limiter),
        docs_url=None, redoc_url=None, separate_input_output_schemas=False, redirect_slashes=False,
        # FastAPI's own spans hold the query and its logs the messages of exceptions, and either may quote a prompt.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    for routes in (native, router, jobs, openai, tokens, messages, operations, page):
        app.include_router(routes)
    server = chosen.server
    app.add_middleware(
        StrictBody, body_bytes_max=server.body_bytes_max, body_timeout_s=server.body_timeout_s,
        write_timeout_s=server.write_timeout_s,
    )
    app.state.components = Components()
    app.add_middleware(SecurityMiddleware, settings=chosen, ring=ring, limiter=limiter)
    app.add_middleware(RequestLogMiddleware)
    # The last to be added is the first to see a request, so the format of the longer path stays.
    app.add_middleware(ErrorFormat, prefix=MESSAGES, render=messages_error_response)
    app.add_middleware(ErrorFormat, prefix=PREFIX, render=error_response)
    for kind in (RequestValidationError, HTTPException, AppError, CompileError, Exception):
        app.add_exception_handler(kind, _answer_error)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI, settings: Settings, limiter: Limiter | None) -> AsyncIterator[None]:
    """Open the service, run the embedded workers, and close in reverse order."""
    with tracing.exporting(settings):
        broker, store = open_broker(settings), open_store(settings)
        scorers = await asyncio.to_thread(open_scorers, settings)
        models = await asyncio.to_thread(ServedModels, settings, broker, store, scorers)
        async with asyncio.TaskGroup() as group:
            workers = [
                group.create_task(serve(queue, handler_opener(queue), broker, store, settings))
                for queue in queues_of(settings, settings.process.embedded_workers)
            ]
            components = components_of(app)
            components.models = models
            components.probe = StorageProbe(broker, store, queues_of(settings))
            for service in models:
                files = service.files
                metrics.serves(service.model, files.revision, files.vocabulary.fingerprint, FORMAT)
            yield
            # New requests are refused before the embedded workers stop, so no job waits for a worker that is gone.
            models.jobs.close()
            components.models = None
            for worker in workers:
                worker.cancel()
        await broker.close()
        await store.close()
        if limiter:
            await limiter.close()


async def _answer_error(request: Request, error: Exception) -> Response:
    """Every error leaves through here, as problem+json."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        # The framework lists the methods of the first of several routes only.
        error = method_not_allowed(request.url.path)
    paths = ""
    if isinstance(error, HTTPException) and error.status_code == 404:
        paths = path_hint(request.url.path, (scope.path for scope in ROUTE_SCOPES))
    return refusal(error, getattr(request.state, "request_id", ""), _fields_of(request), paths)


def _fields_of(request: Request) -> tuple[str, ...]:
    """The fields that the body of a request may have."""
    body = getattr(request.scope.get("route"), "body_field", None)
    kind = getattr(getattr(body, "field_info", None), "annotation", None)
    return tuple(getattr(kind, "model_fields", ()))


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document with the schemas of errors and events."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document["components"]["schemas"]
        schemas["Problem"] = ProblemBody.model_json_schema()
        schemas |= component_schemas(CompiledEventBody, StepEventBody, RestartEventBody, *MESSAGE_EVENTS)
        for path in document["paths"].values():
            for operation in path.values():  # the framework's own 422 is never sent
                faults = operation["responses"].get("422", {"content": {PROBLEM_TYPE: {}}})
                if PROBLEM_TYPE not in faults["content"]:
                    del operation["responses"]["422"]
        document_security(document)
        document_error_body(document, MESSAGES, MessagesErrorBody)
        document_errors(document)
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        app.openapi_schema = document
    return app.openapi_schema


def main() -> None:
    """The command `abs`."""
    from app.cli.main import run

    sys.exit(run(create_app))


if __name__ == "__main__":
    main()
