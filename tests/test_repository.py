"""The repository is complete for a newcomer and independent of one machine.

It has a licence, one lock, and commands that exist.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from functools import cache
from pathlib import Path

from app.cli.demo_questions import AGENT, FLIGHT, IMPOSSIBLE, MODEL, PROMPT, SENTENCE
from app.settings import Settings
from tests.skips import is_listed, reasons

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = {
    ".ci", ".dockerignore", ".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE",
    "Makefile", "README.md", "abs_client", "app", "benchmarks", "compiler", "decoding", "deploy",
    "docker-compose.yml", "docs", "findings", "locks",
    "mkdocs.yml", "openapi.json", "pyproject.toml", "tests", "tools",
}
TARGETS = (
    "setup", "demo", "serve", "check", "test", "test-long", "fuzz", "chaos", "abuse", "bench", "load", "docs", "lock",
    "audit", "lowest",
)
ONE_MACHINE = re.compile(  # what would tie a checkout to the machine or the mirror it was written on
    r"/work/|/root/|/home/\w|file://|(?:find-links|index-url)[ =]+\w+:/"
    r"|pypi\.org|pythonhosted|download\.pytorch|registry\.npmjs"
)
VENDORED = ROOT / "app" / "playground" / "static" / "vendor"  # what others wrote
README_LINES_MAX = 220
SHARED_FOLDER_READER = "tests/conftest.py"  # the only file that names a folder beside the checkout
ARCHITECTURE_WORDS_MAX = 2_500
PROSE = (
    ".acl", ".css", ".html", ".js", ".lua", ".md", ".py", ".sh", ".toml", ".yaml", ".yml", "Dockerfile", "Makefile",
)
VAGUE = re.compile(  # words that hide the component or its verb; "_" joins the words of an identifier
    r"(?<![a-z])(?:told|nobody|whoever|anew|so[\s_#-]+many|of[\s_#-]+itself|by[\s_#-]+and[\s_#-]+by|how[\s_-]?manieth)"
    r"(?![a-z])",
    re.IGNORECASE,
)
VAGUE_DATA = {"tests/test_guards.py"}  # lists such words itself
SENTENCES = "tests/cases/"  # rows there are texts for models and patterns, so only comments count


def ignored() -> set[str]:
    """Names of folders and links that .gitignore lists."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return {line.strip("/") for line in lines if "*" not in line} | {".git"}


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """(path, content) of every text file of the repository, except this one."""
    skip, contents = ignored(), list[tuple[str, str]]()
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in skip and not name.endswith(".egg-info")]
        for file in files:
            path = Path(folder, file)
            binary = file in skip or path.suffix in (".safetensors", ".pyc", ".png", ".whl", ".xz")
            if binary or path == Path(__file__).resolve() or VENDORED in path.parents:
                continue
            contents.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
    return tuple(contents)


def project() -> dict[str, object]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def test_the_top_level_has_only_listed_entries() -> None:
    skip = ignored()
    entries = {path.name for path in ROOT.iterdir() if path.name not in skip and not path.name.endswith(".egg-info")}
    assert entries == TOP_LEVEL


def test_the_licence_is_apache_2_in_full() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text
    assert "[yyyy]" not in text
    assert project()["license"] == "Apache-2.0"


def test_every_make_target_that_is_promised_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in TARGETS:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        assert f"make {target}" in makefile, f"make help does not say what {target} does"


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text(encoding="utf-8")


def test_the_command_abs_is_installed_from_app_main() -> None:
    assert project()["scripts"] == {"abs": "app.main:main"}


def test_the_changelog_knows_the_version() -> None:
    assert f"## {project()['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_nothing_is_tied_to_one_machine() -> None:
    for path, text in texts():
        match = ONE_MACHINE.search(text)
        assert not match, f"{path}: {match}"
        assert "../shared" not in text or path == SHARED_FOLDER_READER, path


def test_no_comment_is_a_todo() -> None:
    for path, text in texts():
        if path.endswith(".py"):
            assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text), path


def generate_bodies(text: str) -> list[object]:
    return [json.loads(body) for body in re.findall(r"/generate .*? -d '\n(.*?)'\n```", text, re.DOTALL)]


def test_the_tutorial_shows_the_questions_of_the_demo() -> None:
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert generate_bodies(tutorial.partition("## 6.")[2]) == [
        {"model": MODEL, "prompt": PROMPT, "constraint": SENTENCE, "max_tokens": 20},
        {"model": MODEL, "prompt": PROMPT, "constraint": IMPOSSIBLE, "max_tokens": 24}, json.loads(json.dumps(AGENT)),
    ]  # fmt: skip
    (body,) = generate_bodies((ROOT / "README.md").read_text(encoding="utf-8"))
    assert body == {"model": MODEL, "prompt": PROMPT, "constraint": FLIGHT, "max_tokens": 20}


def test_the_readme_has_at_most_220_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_contributing_names_every_file_of_a_request_option() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Add a request option")[2]
    files = set(re.findall(r"`((?:abs_client|app|decoding)/[\w./]+)`", page.partition("\n## ")[0]))
    packages = ("abs_client/", "app/", "compiler/", "decoding/")
    assert files == {path for path, text in texts() if path.startswith(packages) and "length_penalty" in text}


def test_contributing_lists_only_reasons_of_skips_that_occur() -> None:
    sources = "".join(text for path, text in texts() if path.startswith("tests/") and path.endswith(".py"))
    for reason in reasons():
        literal = max(reason.split("…"), key=len)
        assert literal in sources or literal.startswith("could not import"), reason  # pytest writes this one
    assert is_listed("the test above is the short form") and not is_listed("the test is slow")


def test_the_page_of_settings_names_every_setting() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    settings = set(re.findall(r"^\| `ABS_([A-Z0-9_]+)`", page, re.MULTILINE))
    assert settings == {name.upper() for name in Settings().values()}


def test_the_architecture_page_is_short() -> None:
    words = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split()
    assert len(words) <= ARCHITECTURE_WORDS_MAX


def test_links_of_the_pages_at_the_top_lead_somewhere() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/README.md"):
        page = ROOT / name
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{name} links to {target}"


def vague_words(path: str, text: str) -> list[str]:
    """`file:line: word` of each vague word. In test data only comments count."""
    if path.startswith(SENTENCES):
        text = "\n".join(line if line.startswith("#") else "" for line in text.split("\n"))
    return [f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in VAGUE.finditer(text)]


def test_no_file_has_vague_words() -> None:
    files = ((path, text) for path, text in texts() if path.endswith(PROSE) and path not in VAGUE_DATA)
    lines = [line for path, text in files for line in vague_words(path, text)]
    assert not lines, "\n".join(lines)
