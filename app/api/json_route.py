"""The routes whose bodies keep the decimals of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute


class JsonRequest(Request):
    """A request whose JSON the middleware `StrictBody` has read."""

    async def json(self) -> Any:
        """The value of the body. Its numbers are as of `compiler.exact_json`."""
        return self.state.json


class JsonRoute(APIRoute):
    """A route that reads its body by `JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of FastAPI, with another request."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json
