"""Certificates of an authority of the tests, for this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path


def write_certificates(folder: Path) -> None:
    """Writes `ca.pem`, `server.pem` and `server.key`. The server is localhost and 127.0.0.1."""
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
