"""The playground at `/` and its files below `/static`. Its headers allow only what this service serves itself.

The page is ES modules and styles in `app/playground/static`. Files of third parties are in `vendor`; its manifest names
version, licence, source and SHA-256 of each file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from fastapi import APIRouter, Header, Response

from app.errors import RouteNotFound

FOLDER = Path(__file__).parents[1] / "playground" / "static"
PAGE = "index.html"
_KINDS = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".json": "application/json", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}
# Scripts and styles are files of ours alone, none written into the page; WebAssembly is what draws the automaton.
POLICY = "; ".join(
    (
        "default-src 'none'", "script-src 'self' 'wasm-unsafe-eval'", "style-src 'self'", "img-src 'self' data:",
        "connect-src 'self'", "font-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-cache",  # caches revalidate, so that a page and its modules have the same version
    "cross-origin-opener-policy": "same-origin",
}
IfNoneMatch = Annotated[str | None, Header()]
router = APIRouter(include_in_schema=False)


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


@router.get("/")
async def page(if_none_match: IfNoneMatch = None) -> Response:
    return _response(PAGE, if_none_match)


@router.get("/static/{file}")
async def static(file: str, if_none_match: IfNoneMatch = None) -> Response:
    return _response(file, if_none_match)


@router.get("/static/{folder}/{file}")
async def static_in_folder(folder: str, file: str, if_none_match: IfNoneMatch = None) -> Response:
    return _response(f"{folder}/{file}", if_none_match)


def _response(path: str, if_none_match: str | None) -> Response:
    file = page_files().get(path)  # a table, so a path cannot leave the folder
    if file is None:
        raise RouteNotFound("there is no such path")
    headers = {**_HEADERS, "etag": file.etag}
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    if file.etag in tags or "*" in tags:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.kind)
