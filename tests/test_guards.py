"""Rules for names, docstrings and private access."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.test_imports import ROOT, functions, modules, nodes, tree

PACKAGES = ("abs_client", "app", "compiler", "decoding", "benchmarks")
PUBLIC = {"_exit", "_replace"}  # of os and of named tuples: public for all their underscore
PRIVATE = {  # name: where it is used; an entry may go, none may come
    "_attn_implementation": {"decoding/model/compatibility.py", "decoding/model/plain_cache.py"},
    "_supports_attention_backend": {"decoding/model/compatibility.py"},
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
        for node in ast.walk(tree(path)):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                    found.add(name)
    return {name for name in found if is_private(name)}


def test_no_more_private_names_of_other_packages_are_used() -> None:
    paths = [path for package in (*PACKAGES, "tests") for path in modules(package).values()]
    used, ours = defaultdict[str, set[str]](set), names_of_ours(paths) | PUBLIC
    for path in paths:
        for node in ast.walk(tree(path)):
            names = [node.attr] if isinstance(node, ast.Attribute) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if is_private(name) and name not in ours:
                    used[name].add(path.relative_to(ROOT).as_posix())
    assert dict(used) == PRIVATE


def has_private_method_of_subclass(path: Path) -> bool:
    """Whether a class with a base defines a private method."""
    classes = (node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef) and node.bases)
    return any(is_private(getattr(each, "name", "")) for node in classes for each in node.body)


def test_no_private_method_of_another_package_is_overridden() -> None:
    ours, overridden = (*PACKAGES, "tests"), set()
    files = [each for package in ours for each in modules(package).items()]
    for name in (name for name, path in files if has_private_method_of_subclass(path)):
        for cls in vars(importlib.import_module(name)).values():
            if not isinstance(cls, type) or cls.__module__ != name:
                continue
            foreign = [base for base in cls.__mro__[1:] if base.__module__.partition(".")[0] not in ours]
            methods = [method for method, value in vars(cls).items() if inspect.isfunction(value)]
            overridden |= {f"{name}.{method}" for method in methods for base in foreign if method in vars(base)}
    assert not {name for name in overridden if is_private(name.rpartition(".")[2])}


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
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = (ast.get_docstring(node) or "").strip()
                    first = re.split(r"(?<=[.!?:])\s+(?=[A-Z`\d(\"'])|\n\s*\n", text, maxsplit=1)[0]
                    assert len(first.split()) <= FIRST_SENTENCE_WORDS_MAX, f"{path.relative_to(ROOT)}: {first}"
