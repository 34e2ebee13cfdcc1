"""nginx with the shipped configuration, before processes of a test."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.processes import accepts_connections, free_port, until

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "nginx"
_CLIENT_TIMES = re.compile(r"(client_header_timeout|send_timeout| keepalive_timeout) (?:10|30)s;")


def nginx_path() -> str | None:
    """Where nginx is. Users other than root often lack its folder in PATH."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def require_nginx() -> str:
    """The path of nginx. Skips where there is none, but in CI that is an error: nothing is skipped there."""
    path = nginx_path()
    if path is None and os.environ.get("CI"):
        pytest.fail("no nginx: .ci/run installs it from the system's packages")
    if path is None:
        pytest.skip("no nginx on the path: install nginx-light or nginx")
    return path


@contextlib.contextmanager
def proxied(folder: Path, *ports: int, client_s: int | None = None, listen: str | None = None) -> Iterator[int]:
    """Yields the port of a proxy before these API ports.

    `client_s` replaces the times in which clients send a header, read, or are idle. `listen` replaces the content of
    listen.conf; PORT in it is the port.
    """
    port = free_port()
    shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
    configuration = (folder / "nginx.conf").read_text(encoding="utf-8")
    if client_s is not None:
        configuration, count = _CLIENT_TIMES.subn(rf"\1 {client_s}s;", configuration)
        assert count == 3
    (folder / "nginx.conf").write_text(configuration, encoding="utf-8")
    (folder / "upstream.conf").write_text("".join(f"server 127.0.0.1:{api};\n" for api in ports), encoding="utf-8")
    listen = listen or "listen 127.0.0.1:PORT backlog=512;\n"
    (folder / "listen.conf").write_text(listen.replace("PORT", str(port)), encoding="utf-8")
    user = ["-g", "user root;"] if os.getuid() == 0 else []  # the folder of a test is closed to others
    command = [require_nginx(), "-p", str(folder), "-c", str(folder / "nginx.conf"), *user]
    log = folder / "error.log"
    with log.open("w") as stream:
        process = subprocess.Popen(command, stderr=stream)
    try:
        until(lambda: process.poll() is not None or accepts_connections(port), "nginx accepts connections")
        assert process.poll() is None, log.read_text(encoding="utf-8")
        yield port
    finally:
        process.terminate()
        process.wait(60)
