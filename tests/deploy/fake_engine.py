"""A container engine that creates nothing and keeps the requests of Compose."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

from tests.servers.processes import served_by_thread

ANSWERS: dict[str, Any] = {"/version": {"ApiVersion": "1.41"}, "/info": {}, "/containers/json": []}
Containers = dict[str, dict[str, Any]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    containers: Containers

    def do_GET(self) -> None:
        """Every image exists, each created container, no network and no volume."""
        path = re.sub(r"^/v[\d.]+", "", self.path).partition("?")[0]
        if path in ANSWERS:
            self._reply(200, ANSWERS[path])
        elif path.startswith("/images/"):
            self._reply(200, {"Id": "sha256:1"})
        elif path.startswith("/containers/"):
            name = path.split("/")[2]
            self._reply(200, {"Id": name, "Name": f"/{name}", "Config": self.containers[name]})
        else:
            self._reply(404, {"message": f"no such object: {path}"})

    def do_POST(self) -> None:
        """Keep the configuration of a container by its service."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        service = body.get("Labels", {}).get("com.docker.compose.service", "")
        if service:
            self.containers[service] = body
        self._reply(201, {"Id": service or "1", "Name": service or "1"})

    def _reply(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing: Compose reports what fails."""


@contextlib.contextmanager
def fake_engine(folder: Path) -> Iterator[tuple[str, Containers]]:
    """The engine's address, and the containers that it is to create.

    Their configurations have the names of their services.
    """
    containers: Containers = {}
    handler = type("Handler", (_Handler,), {"containers": containers})
    with served_by_thread(ThreadingUnixStreamServer(str(folder / "engine.sock"), handler)):
        yield f"unix://{folder}/engine.sock", containers
