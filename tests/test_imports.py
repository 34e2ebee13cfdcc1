"""Every line has one room: the import table of ARCHITECTURE.md, read off the source files."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("compiler", "decoding", "abs_client", "app")  # each imports only itself and those on its left
ORDER = {  # inside a package, a module imports only those on its left
    "compiler": """errors limits vocab automata lifting ltlf regex engines json_schema spec text forms artifact codec
        diagnostics pipeline""",
    "decoding": """errors options memory tensors model generation forced_tokens heuristic prepared_constraint search
        sampling engine label_decoding logits_processor replay""",
    "abs_client": """errors pieces html results constraints formulas forms events retries calls stories connection
        client async_client""",
    "app": """errors playground settings models observability messages redis auth automaton_cache broker matrix requests
        store service worker api wiring http_server local openai cli main""",
}
DOORS = {  # what a package may see of another; a missing pair means all of it
    ("decoding", "compiler"): {"compiler.lifting"},
    ("abs_client", "compiler"): set(),  # it is for programs of others: none of ours comes along
    ("abs_client", "decoding"): set(),
}
ONLY = {  # who may name a library: a module, or everything below it
    "torch": ("decoding",),
    "transformers": ("decoding",),
    "fastapi": ("app.api", "app.openai", "app.main"),
    "starlette": ("app.api", "app.main"),
    "jinja2": ("app.openai.chat_template",),
    "coredis": ("app.redis", "app.broker.redis", "app.store.redis"),
    "streaq": ("app.redis", "app.broker.redis"),
    "prometheus_client": ("app.observability.metrics",),
    "opentelemetry": ("app.observability.tracing",),
    "decoding": ("decoding", "app.worker.handlers.generate"),
    "zstandard": ("compiler.codec",),
    "safetensors": ("compiler.codec", "decoding"),
    "lemminflect": ("compiler.forms.inflections",),
    "ltlf2dfa": ("compiler.ltlf.mona_program",),
    "FAdo": ("compiler.regex.fado",),
}
NEVER = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
COMPILER_LIBRARIES = {"numpy", "zstandard", "safetensors", "lemminflect", "ltlf2dfa", "FAdo"}
BY_HAND = {"FAdo", "pycocoevalcap", "xgrammar"}  # `make reference` installs them without what they declare
DISTRIBUTION = {  # where the import name is not the distribution's; the first that fits
    "lmformatenforcer": "lm-format-enforcer",
    "outlines_core": "outlines-core",
    "PIL": "pillow",
    "pydantic_ai": "pydantic-ai-slim",
    "yaml": "pyyaml",
    "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry": "opentelemetry-sdk",  # with the API and the protocol that it brings along
}
READERS = ("app.settings", "abs_client.connection")  # of the environment
LINES_MAX, FUNCTION_LINES_MAX, FUNCTION_LINES_USUAL = 400, 60, 40


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def modules(package: str) -> dict[str, Path]:
    """Dotted name -> file, for every module of a top-level package."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


OURS = {name: path for package in PACKAGES for name, path in modules(package).items()}


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a file imports; `from compiler import dfa` names compiler.automata.dfa."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in OURS else str(node.module)


def below(name: str, roof: str) -> bool:
    return name == roof or name.startswith(roof + ".")


def unit(name: str) -> str:
    """The entry of ORDER that a module belongs to: compiler.automata.dfa -> dfa, app.broker.memory -> broker."""
    return name.split(".")[1]


def members(package: str) -> list[tuple[str, Path]]:
    """The modules of a package, without its own __init__."""
    return [(name, path) for name, path in modules(package).items() if name != package]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_a_place_in_the_order(package: str) -> None:
    assert {unit(name) for name, _ in members(package)} == set(ORDER[package].split())


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_to_the_left(package: str) -> None:
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    for name, path in modules(package).items():
        for imported in imports(path):
            top = imported.partition(".")[0]
            assert top not in ("tests", "benchmarks"), f"{name} imports {imported}"
            if top in PACKAGES:
                assert top in allowed, f"{name} imports {imported}"
                door = DOORS.get((package, top))
                assert door is None or imported in door, f"{name} imports {imported}, not through {door}"


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_import_only_to_the_left(package: str) -> None:
    order = ORDER[package].split()
    for name, path in members(package):
        for imported in imports(path):
            if below(imported, package) and imported != package and unit(imported) != unit(name):
                assert order.index(unit(imported)) < order.index(unit(name)), f"{name} imports {imported}"


@pytest.mark.parametrize("library", ONLY)
def test_a_library_is_named_only_in_its_room(library: str) -> None:
    for name, path in OURS.items():
        if any(below(imported, library) for imported in imports(path)):
            assert any(below(name, roof) for roof in ONLY[library]), f"{name} imports {library}"


def test_the_compiler_needs_numpy_and_the_standard_library_alone() -> None:
    for name, path in modules("compiler").items():
        foreign = {imported.partition(".")[0] for imported in imports(path)} - set(sys.stdlib_module_names)
        assert foreign <= COMPILER_LIBRARIES | {"compiler"}, name


def test_the_client_needs_httpx2_and_the_standard_library_alone() -> None:
    for name, path in modules("abs_client").items():
        foreign = {imported.partition(".")[0] for imported in imports(path)} - set(sys.stdlib_module_names)
        assert foreign <= {"httpx2", "abs_client"}, name


def test_only_the_settings_read_the_environment() -> None:
    for name, path in OURS.items():
        for node in ast.walk(tree(path)):
            word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            assert word not in ("environ", "getenv") or name in READERS, f"{name}: {word}"


def test_nothing_is_ever_unpickled() -> None:
    for name, path in OURS.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, name
        assert not {imported.partition(".")[0] for imported in imports(path)} & NEVER, name


def declared(*extras: str) -> set[str]:
    """Distribution names that pyproject.toml asks for, of the package itself and of the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    wanted += [one for extra in extras for one in project["optional-dependencies"][extra]]
    return {re.split(r"[\[<>=!~ ;]", one)[0].lower().replace("_", "-") for one in wanted}


def foreign(packages: tuple[str, ...]) -> set[str]:
    """Distribution names that the packages import."""
    own = {*PACKAGES, "tests", "benchmarks", "docs", *sys.stdlib_module_names}
    paths = [path for package in packages for path in modules(package).values()]
    names = {name for path in paths for name in imports(path) if name.partition(".")[0] not in own}
    return {_distribution(name) for name in names}


def _distribution(name: str) -> str:
    known = (distribution for imported, distribution in DISTRIBUTION.items() if below(name, imported))
    return next(known, name.partition(".")[0].replace("_", "-"))


def test_every_import_is_declared_and_every_declaration_imported() -> None:
    used = foreign(PACKAGES) - {"starlette"} - BY_HAND  # starlette is fastapi's own floor
    assert used == declared("compile", "inference", "redis", "up", "otel")
    assert foreign(("tests",)) - used <= declared("dev") | {"starlette"}
    assert foreign(("benchmarks",)) - used - BY_HAND - of_other_systems() <= declared("reference")


def test_what_is_brought_first_is_what_generating_takes() -> None:
    said = re.search(r"^GENERATING := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert said and set(said[1].split()) == declared("inference") - declared()


def of_other_systems() -> set[str]:
    """What the environments hold of the systems that are measured beside ours."""
    files = (ROOT / "benchmarks" / "systems" / "requirements").glob("*.txt")
    return {line.partition("==")[0] for file in files for line in file.read_text(encoding="utf-8").splitlines()}


@pytest.mark.parametrize("package", [*PACKAGES, "tests", "benchmarks"])
def test_no_file_is_too_long_to_read(package: str) -> None:
    for name, path in modules(package).items():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= LINES_MAX, f"{name} has {lines} lines"


@pytest.mark.parametrize("package", [*PACKAGES, "benchmarks"])
def test_functions_are_short(package: str) -> None:
    lengths = {}
    for name, path in modules(package).items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths[f"{name}:{node.name}:{node.lineno}"] = (node.end_lineno or node.lineno) - node.lineno + 1
    long = {name: length for name, length in lengths.items() if length > FUNCTION_LINES_USUAL}
    assert all(length <= FUNCTION_LINES_MAX for length in long.values()), long
    assert len(long) <= len(lengths) / 20, long


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_owns(package: str) -> None:
    for name, path in modules(package).items():
        assert ast.get_docstring(tree(path)), f"{name} has no docstring"
