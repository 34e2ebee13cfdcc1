"""The files of the playground: one page of ES modules and styles.

`page_files` reads them once, and `app.api.playground` serves them. This package imports no HTTP library. Files of third
parties are in `static/vendor`; its manifest names version, licence, source and SHA-256 of each file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

__all__ = ["FOLDER", "PAGE", "PageFile", "page_files"]

FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
_KINDS = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".json": "application/json", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent. `etag` is quoted and changes with the file's bytes."""

    body: bytes
    kind: str
    etag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """Every file by its path below the folder.

    Examples are "index.html" and "vendor/wasm-graphviz.js". Each file is read once for each process. A file that is
    missing at the start is not served, because requests never name a path of the disk.
    """
    files = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in _KINDS and path.is_file():
            body = path.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            files[path.relative_to(FOLDER).as_posix()] = PageFile(body, _KINDS[path.suffix], etag)
    return MappingProxyType(files)
