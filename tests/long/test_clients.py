"""The clients of `make clients`, and what the documentation says of them."""

from __future__ import annotations

import re

from docs.tools.pages import DOCS
from tests.long.clients.environments import HERE, REQUIREMENTS, names, version


def test_the_documentation_has_the_version_of_each_client() -> None:
    page = (DOCS / "openai.md").read_text(encoding="utf-8").partition("## Clients")[2]
    rows = dict(re.findall(r"^\| ([a-z-]+) \| ([0-9.]+) \|", page, re.MULTILINE))
    assert rows == {name: version(name) for name in names()}


def test_every_client_has_a_module_and_pinned_requirements() -> None:
    for name in names():
        module = f"{name.replace('-', '_')}_client"
        assert len(list(HERE.glob(f"{module}.*"))) == 1, name
    for path in REQUIREMENTS.glob("*.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), f"{path.name}: {line}"
