"""Rules for names, docstrings and private access."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.test_imports import ROOT, functions, modules, nodes, nodes_of

PACKAGES = ("abs_client", "app", "compiler", "decoding", "benchmarks")
CHECKED = (*PACKAGES, "tests")  # packages whose private methods are compared with those of their bases
WITHOUT_METHODS = {"ABC", "Generic", "Protocol"}
PUBLIC = {"_exit", "_replace"}  # of os and of named tuples: public for all their underscore
# Private names of other packages and where they are used; an entry may go, none may come. transformers sets it and
# reads it only inside: no public name tells which attention a loaded model runs, and set_attn_implementation() accepts
# every model.
PRIVATE = {
    "_attn_implementation": {"decoding/model/compatibility.py", "decoding/model/plain_cache.py"},
}
POSITIONAL_MAX = 4
POSITIONAL = {  # how many functions and dataclasses take more by position; a count may fall, none may rise
    "abs_client": 17,
    "app": 58,
    "benchmarks": 17,
    "compiler": 0,
    "decoding": 1,  # the attention function, whose signature the library dictates
}
TEST_NAME_WORDS_MAX = 10
FIRST_SENTENCE_WORDS_MAX = 12
BANNED = re.compile(  # words that hide the term of the field; a name between underscores
    r"_(?:told|asked|nobody|whoever|anew|begun|he|his|so_many|of_itself|by_and_by|how_manieth|crowd|desk|rooms?|doors?"
    r"|mother|nursery|tickets?|lessons?|story|stories|walls?|eyes?|ears?)(?=_|$)"
)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def names_of_ours(paths: list[Path]) -> set[str]:
    """All private names of our files and of private modules."""
    found = {path.stem for path in paths}
    for path in paths:
        for node in nodes_of(path):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    found.add(name)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                    found.add(name)
    return {name for name in found if is_private(name)}


def foreign_path(node: ast.AST) -> list[str]:
    """The parts of foreign modules' names that a statement imports from."""
    match node:
        case ast.Import(names=names):
            imported = [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            imported = [module]
        case _:
            return []
    return [part for module in imported if is_foreign(module) for part in module.split(".")]


def test_parts_of_module_names_are_seen() -> None:
    for source in ("import a._b.c", "from a._b import c", "from a.c import d\nimport a._b"):
        assert [part for node in ast.parse(source).body for part in foreign_path(node) if is_private(part)] == ["_b"]
    assert not foreign_path(ast.parse("from abs_client._io import run").body[0])


def test_no_more_private_names_of_other_packages_are_used() -> None:
    paths = [path for package in (*PACKAGES, "tests") for path in modules(package).values()]
    used, ours = defaultdict[str, set[str]](set), names_of_ours(paths) | PUBLIC
    for path in paths:
        for node in nodes_of(path):
            names = [node.attr] if isinstance(node, ast.Attribute) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            for name in (*names, *foreign_path(node)):
                if is_private(name) and name not in ours:
                    used[name].add(path.relative_to(ROOT).as_posix())
    assert dict(used) == PRIVATE


def foreign_names(path: Path) -> set[str]:
    """The names that a file imports from other packages, without WITHOUT_METHODS."""
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names if is_foreign(alias.name)}
        elif isinstance(node, ast.ImportFrom) and is_foreign(node.module or ""):
            names |= {alias.asname or alias.name for alias in node.names}
    return names - WITHOUT_METHODS


def is_foreign(module: str) -> bool:
    return module.partition(".")[0] not in CHECKED


@cache
def classes() -> dict[str, list[tuple[ast.ClassDef, Path]]]:
    """Our classes by name, with their files."""
    found = defaultdict[str, list[tuple[ast.ClassDef, Path]]](list)
    for path in (path for package in CHECKED for path in modules(package).values()):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                found[node.name].append((node, path))
    return dict(found)


def has_foreign_base(node: ast.ClassDef, path: Path, seen: frozenset[ast.ClassDef] = frozenset()) -> bool:
    """Whether a base comes from another package, also through ours."""
    names = {ast.unparse(base).partition("[")[0] for base in node.bases} - WITHOUT_METHODS - vars(builtins).keys()
    lists = [classes().get(name.rpartition(".")[2], []) for name in names]
    if not all(lists) or any(name.partition(".")[0] in foreign_names(path) for name in names):
        return True
    bases = [each for each_list in lists for each in each_list if each[0] not in seen | {node}]
    return any(has_foreign_base(*base, seen | {node}) for base in bases)


def may_override(path: Path) -> bool:
    """Whether a class with a foreign base defines a private method."""
    classes = (node for node in nodes_of(path) if isinstance(node, ast.ClassDef) and node.bases)
    private = (node for node in classes if any(is_private(getattr(each, "name", "")) for each in node.body))
    return any(has_foreign_base(node, path) for node in private)


def overridden_private_methods(*packages: str) -> set[str]:
    """Private methods of packages that a foreign base has, too."""
    overridden = set()
    files = [each for package in packages for each in modules(package).items()]
    for name in (name for name, path in files if may_override(path)):
        for cls in vars(importlib.import_module(name)).values():
            if not isinstance(cls, type) or cls.__module__ != name:
                continue
            foreign = [base for base in cls.__mro__[1:] if is_foreign(base.__module__)]
            methods = [method for method, value in vars(cls).items() if inspect.isfunction(value)]
            overridden |= {f"{name}.{method}" for method in methods for base in foreign if method in vars(base)}
    return {name for name in overridden if is_private(name.rpartition(".")[2])}


def test_no_private_method_of_another_package_is_overridden() -> None:
    # Those of decoding are in tests/decoding/test_logits_processor.py, which imports PyTorch anyway.
    assert not overridden_private_methods(*(set(CHECKED) - {"decoding"}))


def test_class_names_are_unique() -> None:
    classes = (node for package in PACKAGES for _, node in nodes(package) if isinstance(node, ast.ClassDef))
    names = Counter(node.name for node in classes)
    assert not [name for name, count in names.items() if count > 1]


def positional_fields(node: ast.ClassDef) -> int:
    """How many fields the constructor of a dataclass takes by position. Other classes have none."""
    calls = [ast.unparse(decorator) for decorator in node.decorator_list]
    count = 0
    for field in node.body if any("dataclass" in call and "kw_only=True" not in call for call in calls) else ():
        if isinstance(field, ast.AnnAssign):
            if "KW_ONLY" in ast.unparse(field.annotation):
                break
            count += "ClassVar" not in ast.unparse(field.annotation) and "init=False" not in ast.unparse(field)
    return count


@pytest.mark.parametrize("package", PACKAGES)
def test_arguments_beyond_four_are_passed_by_keyword(package: str) -> None:
    over = []
    for module, node in nodes(package):
        if isinstance(node, ast.ClassDef):
            count = positional_fields(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = sum(arg.arg not in ("self", "cls") for arg in (*node.args.posonlyargs, *node.args.args))
        else:
            continue
        if count > POSITIONAL_MAX:
            over.append(f"{module}.{node.name}")
    assert len(over) <= POSITIONAL[package], over


def test_test_names_are_short_and_use_common_terms() -> None:
    for module, node, _ in functions("tests"):
        if node.name.startswith("test_"):
            where = f"{module}: {node.name}"
            assert node.name.count("_") <= TEST_NAME_WORDS_MAX, f"{where} has over {TEST_NAME_WORDS_MAX} words"
            assert not BANNED.search(node.name), f"{where} has a banned word"


def test_docstrings_begin_with_a_short_sentence() -> None:
    for package in (*PACKAGES, "tests", "tools", "docs"):
        for path in modules(package).values():
            for node in nodes_of(path):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = (ast.get_docstring(node) or "").strip()
                    first = re.split(r"(?<=[.!?:])\s+(?=[A-Z`\d(\"'])|\n\s*\n", text, maxsplit=1)[0]
                    assert len(first.split()) <= FIRST_SENTENCE_WORDS_MAX, f"{path.relative_to(ROOT)}: {first}"
