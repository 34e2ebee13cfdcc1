"""The examples in the client's docstrings, run. Those of methods run against a service."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from typing import Any

import pytest

import abs_client
from abs_client import AsyncClient, Client

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = [f"abs_client.{module.name}" for module in pkgutil.iter_modules(abs_client.__path__)]
CLOSING = {"close", "job"}  # methods without an example
CONSTRAINTS = {
    name for name in abs_client.__all__
    if isinstance(getattr(abs_client, name), type) and issubclass(getattr(abs_client, name), abs_client.Constraint)
} - {"NamedProposition"}  # fmt: skip


def names() -> dict[str, Any]:
    return {name: getattr(abs_client, name) for name in abs_client.__all__}


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("client")])
def test_the_examples_of_a_module_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name), extraglobs=names(), optionflags=OPTIONS).failed == 0


def example(owner: type, method: str) -> doctest.DocTest:
    documentation = inspect.getdoc(getattr(owner, method)) or ""
    return doctest.DocTestParser().get_doctest(documentation, {}, f"{owner.__name__}.{method}", None, None)


METHODS = [name for name in vars(Client) if not name.startswith("_") and name not in CLOSING]


@pytest.mark.parametrize("method", METHODS)
def test_the_example_of_a_method_holds(method: str, url: str) -> None:
    test = example(Client, method)
    assert test.examples, method
    with Client(url) as client:
        test.globs = names() | {"client": client}
        assert doctest.DocTestRunner(optionflags=OPTIONS).run(test).failed == 0
    asynchronous = [line.source.replace("await ", "") for line in example(AsyncClient, method).examples]
    assert asynchronous == [line.source for line in test.examples]


def test_each_form_of_constraint_has_an_example() -> None:
    for name in CONSTRAINTS:
        assert ">>>" in (inspect.getdoc(getattr(abs_client, name)) or ""), name
