"""The playground at `/` and its files below `/static`. Its headers allow only what this service serves itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from app.errors import RouteNotFound
from app.playground import PAGE, PageFile, page_files

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


@router.get("/")
async def page(if_none_match: IfNoneMatch = None) -> Response:
    return _response(page_files()[PAGE], if_none_match)


@router.get("/static/{file}")
async def static(file: str, if_none_match: IfNoneMatch = None) -> Response:
    return _named(file, if_none_match)


@router.get("/static/{folder}/{file}")
async def static_in_folder(folder: str, file: str, if_none_match: IfNoneMatch = None) -> Response:
    return _named(f"{folder}/{file}", if_none_match)


def _named(path: str, if_none_match: str | None) -> Response:
    file = page_files().get(path)  # a table, so a path cannot leave the folder
    if file is None:
        raise RouteNotFound("there is no such path")
    return _response(file, if_none_match)


def _response(file: PageFile, if_none_match: str | None) -> Response:
    headers = {**_HEADERS, "etag": file.etag}
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    if file.etag in tags or "*" in tags:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.kind)
