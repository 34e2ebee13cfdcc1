"""Documents access in OpenAPI: keys, refusals of the middleware, and links."""

from __future__ import annotations

from typing import Any

from app.api.openapi import problem_response
from app.auth import HEALTH, ROUTE_SCOPES

Document = dict[str, Any]
KEY, KEY_FIELD = "key", "key_field"
_SCHEMES = {
    KEY: {
        "type": "http", "scheme": "bearer",
        "description": "A key as `abs keys new` makes it, where the service has keys",
    },
    KEY_FIELD: {
        "type": "apiKey", "in": "header", "name": "x-api-key", "description": "The key, as Anthropic's clients send it"
    },
}
_ANYWHERE = {
    "400": "malformed_request, invalid_json", "403": "origin_refused", "408": "request_timeout",
    "413": "body_too_large", "415": "unsupported_media_type", "421": "host_refused", "431": "headers_too_large",
    "500": "internal",
}
_WITH_KEYS = {
    "401": "unauthorized, with WWW-Authenticate", "403": "forbidden", "404": "not_found",
    "429": "rate_limited, with Retry-After and RateLimit fields",
}
_HEADERS = {  # name: type and meaning
    "Retry-After": ("integer", "Seconds after which the request may be sent again"),
    "WWW-Authenticate": ("string", "The scheme of the keys"),
    "RateLimit-Limit": ("integer", "The requests that the key may make in a minute; absent without keys"),
    "RateLimit-Remaining": ("integer", "Those that are left; absent without keys"),
    "RateLimit-Reset": ("integer", "Seconds until there are more; absent without keys"),
}
_RATE_LIMIT = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
_BY_STATUS = {"401": ("WWW-Authenticate",), "429": ("Retry-After",), "503": ("Retry-After",)}
_UNLIMITED = ("401", "403", "421", "431")  # statuses of requests that are refused before their key is charged
_JOB = ("job", "get", "/jobs/{job_id}", {"job_id": "$response.body#/id"})
_CANCEL = ("cancel", "delete", "/jobs/{job_id}", {"job_id": "$response.body#/id"})
_AUTOMATON = ("automaton", "get", "/automata/{automaton}", {"automaton": "$response.body#/automaton"})
_LINKS = (  # of an answer: name, method, path and parameters of what it leads to
    ("post", "/compile", "200", (_AUTOMATON,)),
    ("post", "/generate", "200", (_JOB, _AUTOMATON)),
    ("post", "/generate", "202", (_JOB, _CANCEL)),
    ("post", "/compile", "202", (_JOB, _CANCEL)),
    ("post", "/decode", "202", (_JOB, _CANCEL)),
)


def document_security(document: Document) -> None:
    """Add security, refusals and links to a document of the routes."""
    document["components"].setdefault("securitySchemes", {}).update(_SCHEMES)
    scopes = {(route.method.lower(), route.path): route.scopes for route in ROUTE_SCOPES}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _may_answer(operation["responses"], _ANYWHERE)
            if (method.upper(), path) == HEALTH:  # public in every configuration
                continue
            _may_answer(operation["responses"], _WITH_KEYS)
            operation["security"] = [{KEY: []}, {KEY_FIELD: []}]
            operation["x-scopes"] = list(scopes.get((method, path), ()))
    _document_headers(document)
    for method, path, status, links in _LINKS:
        responses = document["paths"].get(path, {}).get(method, {}).get("responses", {})
        if status in responses:
            responses[status]["links"] = {
                name: {"operationId": document["paths"][target][verb]["operationId"], "parameters": parameters}
                for name, verb, target, parameters in links
                if verb in document["paths"].get(target, {})
            }


def _document_headers(document: Document) -> None:
    """Add the headers about keys, their rate limits and another attempt."""
    document["components"]["headers"] = {
        name: {"description": meaning, "schema": {"type": kind}} for name, (kind, meaning) in _HEADERS.items()
    }
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                names = list(_BY_STATUS.get(status, ()))
                if "security" in operation and status not in _UNLIMITED:
                    names += _RATE_LIMIT
                for name in names:
                    response.setdefault("headers", {})[name] = {"$ref": f"#/components/headers/{name}"}


def _may_answer(responses: Document, more: dict[str, str]) -> None:
    for status, meaning in more.items():
        if status not in responses:
            responses[status] = problem_response(meaning)
        else:
            # The descriptions are lists of codes, so a code that the route itself documents is not repeated.
            description = responses[status]["description"]
            codes = {code.strip() for code in description.split(",")}
            added = [code for code in meaning.split(", ") if code not in codes]
            responses[status]["description"] = ", ".join([description, *added])
