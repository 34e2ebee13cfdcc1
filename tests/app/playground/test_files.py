"""The playground's files: headers, vendored libraries and content."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.api.playground import FOLDER, page_files
from app.main import create_app
from app.settings import Settings
from docs.tools.reference import ERRORS
from tests.app.access_keys import bearer, stored_key
from tests.app.conftest import service_client

ERRORS_PAGE = Path(__file__).parents[3] / "docs" / "errors.md"
PAGE_BYTES_MAX = 2_000_000
LINES_MAX, MODULES_MAX = 400, 20
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http://www.w3.org/1999/xhtml"}
NEVER = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|\son[a-z]+=\"")
OURS = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.parent.name != "vendor")
MODULES = [path for path in OURS if path.suffix == ".js"]
IMPORT = re.compile(r"""(?:\bfrom|\bimport|new URL\()\s*\(?["'](\.{1,2}/[^"']+)["']""")


class Tags(HTMLParser):
    """Every tag of a page with its attributes and inline text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""
        self._within = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._within = tag

    def handle_data(self, data: str) -> None:
        if self._within in ("script", "style"):
            self.inline += data.strip()

    def handle_endtag(self, tag: str) -> None:
        self._within = ""


@pytest.fixture(scope="module")
def open_client() -> Iterator[TestClient]:
    with service_client(None, embedded_workers=()) as client:
        yield client


@pytest.fixture(params=["/", "/static/agent.html"])
def page(request: pytest.FixtureRequest, open_client: TestClient) -> Tags:
    tags = Tags()
    tags.feed(open_client.get(request.param).text)
    return tags


def test_every_page_file_is_served_under_a_strict_policy(open_client: TestClient) -> None:
    policy = (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    for path in ("/", *(f"/static/{name}" for name in page_files())):
        response = open_client.get(path)
        assert response.status_code == 200, path
        assert response.headers["content-security-policy"] == policy, path
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cross-origin-opener-policy"] == "same-origin"
        assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/static/main.js", "text/javascript"), ("/static/base.css", "text/css"),
     ("/static/icon.svg", "image/svg+xml"), ("/static/vendor/manifest.json", "application/json")],
)
def test_every_file_has_its_media_type(path: str, kind: str, open_client: TestClient) -> None:
    assert open_client.get(path).headers["content-type"].partition(";")[0] == kind


def test_an_unchanged_file_gets_304_by_its_etag(open_client: TestClient) -> None:
    full_response = open_client.get("/static/main.js")
    etag = full_response.headers["etag"]
    for match_tag in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        revalidation = open_client.get("/static/main.js", headers={"if-none-match": match_tag})
        assert (revalidation.status_code, revalidation.content, revalidation.headers["etag"]) == (304, b"", etag)
        assert revalidation.headers["content-security-policy"] == full_response.headers["content-security-policy"]
    assert open_client.get("/static/main.js", headers={"if-none-match": '"other"'}).content == full_response.content
    assert len({file.etag for file in page_files().values()}) == len(page_files())


@pytest.mark.parametrize(
    "path",
    ["/static", "/static/", "/static/nothing.js", "/static/vendor/", "/static/vendor/nothing.js", "/static/../main.py",
     "/index.html", "/static/%2e%2e/main.py", "/static/..%2f__init__.py", "/static/..%2f..%2fmain.py",
     "/static/vendor%2fmanifest.json/x", "/static/vendor/../main.py", "/static/%00", "/static//etc/passwd"],
)
def test_files_outside_the_page_are_not_served(path: str, open_client: TestClient) -> None:
    assert open_client.get(path).status_code == 404


def test_pages_are_read_and_not_written_to(open_client: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert open_client.request(method, "/").status_code == 405


def test_the_openapi_document_omits_the_page() -> None:
    paths = create_app(Settings.of(embedded_workers=())).openapi()["paths"]
    assert not [path for path in paths if path == "/" or path.startswith("/static")]


def test_the_page_needs_a_key_unless_it_is_public(tmp_path: Path) -> None:
    key_header = bearer(stored_key(tmp_path / "keys", "anna", "compile"))
    paths = ("/", "/static/main.js", "/static/vendor/manifest.json")
    settings = {"keys_file": str(tmp_path / "keys"), "embedded_workers": ()}
    with service_client(None, **settings) as client:
        assert {client.get(path).status_code for path in paths} == {401}
        assert {client.get(path, headers=key_header).status_code for path in paths} == {200}
    with service_client(None, **settings, public_paths=("/",)) as client:
        assert {client.get(path).status_code for path in paths} == {200}
        for route in ("GET /v1/models", "GET /staticx", "POST /static/main.js", "POST /check"):
            assert client.request(*route.split()).status_code == 401, route


def test_the_whole_page_is_small() -> None:
    assert sum(len(file.body) for file in page_files().values()) < PAGE_BYTES_MAX


def test_vendored_files_match_their_manifest() -> None:
    folder = FOLDER / "vendor"
    rows = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    references = {"manifest.json"}
    for row in rows:
        assert row["version"] and row["licence"] and row["source"].startswith("https://")
        for file, digest in ((row["file"], row["sha256"]), (row["licence_file"], row["licence_sha256"])):
            assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file
            references.add(file)
    assert {path.name for path in folder.iterdir()} == references


def test_the_page_has_no_inline_code_or_foreign_file(page: Tags) -> None:
    assert page.inline == ""
    files = set(page_files())
    for tag, attributes in page.tags:
        assert "style" not in attributes and not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href"):
            target = attributes.get(name) or "#"
            assert target.startswith("#") or target == "/" or target.removeprefix("/static/") in files, target
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        for name in ("for", "aria-labelledby"):
            assert attributes.get(name) is None or attributes[name] in ids, attributes


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_page_module_names_no_host_and_writes_no_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"'`)>]+", text)) <= NAMESPACES
    assert not NEVER.search(text)
    assert len(text.splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_page_module_is_documented_and_its_imports_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("//")
    for target in IMPORT.findall(text):
        assert (path.parent / target).resolve().relative_to(FOLDER).as_posix() in page_files(), target


def test_every_page_folder_has_at_most_twenty_modules() -> None:
    assert max(Counter(path.parent for path in MODULES).values()) <= MODULES_MAX


def test_every_file_is_used() -> None:
    texts = {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in OURS}
    for name in texts:
        pattern = rf"[\"'/]{re.escape(name.rpartition('/')[2])}[\"']"
        is_used = any(re.search(pattern, text) for other_name, text in texts.items() if other_name != name)
        assert is_used or name == "index.html", name


def test_every_documented_error_has_its_sentence_and_no_other_has() -> None:
    codes = set(re.findall(r"^\| [0-9, ]+ \| \[`([a-z_]+)`\]", ERRORS_PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    module = (FOLDER / "problems.js").read_text(encoding="utf-8")
    sentences = module.partition("SENTENCES = {")[2].partition("\n};")[0]
    sentence_codes = set(re.findall(r"^  ([a-z_]+): \(", sentences, re.MULTILINE))
    assert sentence_codes == codes == {row.code for row in ERRORS.values()} - {"client_gone"}
