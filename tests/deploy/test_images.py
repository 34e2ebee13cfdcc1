"""The built images: size, contents, and no secret in any layer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from tests.deploy.engine import described, docker, layers, require_engine

SIZE_MAX = {"light": 450_000_000, "light-fado": 450_000_000, "cpu": 1_300_000_000}
NOT_NEEDED = (  # patterns of paths; a base image may have pip of its own
    "/opt/abs/bin/pip*", "/opt/abs/*/site-packages/pip/*",
    "*/bin/gcc*", "*/bin/cc", "*/bin/ld", "*/bin/make", "*/bin/uv", "*/.cache/*",
    "*/nvidia/*", "*/triton/*", "*/libtorch_cuda*", "*/libcudart*", "*/torch/include/*", "*/site-packages/*/tests/*",
)  # fmt: skip
SECRET_FILES = (
    "*/.env", "*/.netrc", "*/.pypirc", "*/pip.conf", "*/id_rsa*", "*/id_ed25519*", "*/keyring/*", "*/.git/*",
)  # fmt: skip
SECRETS = re.compile(
    rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{64}"  # with a body: libraries know the first line
    rb"|\babs_[0-9a-f]{12}_[0-9a-f]{48}\b|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bhf_[A-Za-z0-9]{34}\b"
    rb"|\bsk-[A-Za-z0-9]{40,}\b|\bpypi-AgEI[\w-]{50,}|//[\w.-]+:[^\s/@:]{16,}@[\w.-]+"
)
EXAMPLES = re.compile(rb"//user(?:name)?:|//[\w.-]+:(?:pass|<|\{|\$|%)")  # of documentation


def secrets(content: bytes) -> Iterator[bytes]:
    """Strings that resemble a key, a token or an address with password."""
    return (match[0] for match in SECRETS.finditer(content) if not EXAMPLES.match(match[0]))


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    require_engine()


@pytest.mark.parametrize("tag", SIZE_MAX)
def test_an_image_is_small(tag: str) -> None:
    assert described(f"abs-server:{tag}")["Size"] <= SIZE_MAX[tag]


@pytest.mark.parametrize("tag", SIZE_MAX)
def test_no_layer_holds_a_secret_or_a_build_tool(tag: str) -> None:
    paths = []
    for member, content in layers(f"abs-server:{tag}"):
        path = "/" + member.name.removeprefix("./")
        paths.append(path)
        assert not any(fnmatch(path, pattern) for pattern in (*NOT_NEEDED, *SECRET_FILES)), path
        assert not list(secrets(content)), (path, list(secrets(content)))
    assert any(fnmatch(path, "*/site-packages/app/main.py") for path in paths)
    assert any(fnmatch(path, "*/site-packages/torch/__init__.py") for path in paths) == (tag == "cpu")
    assert any(fnmatch(path, "*/site-packages/FAdo/*") for path in paths) == (tag == "light-fado")


def test_the_scan_finds_secrets_of_each_kind() -> None:
    key = b"-----BEGIN RSA PRIVATE KEY-----\n" + b"MIIEpAIBAAKCAQEA" * 8
    address = b"redis://api:" + b"k3" * 12 + b"@redis:6379/0"
    for secret in (key, b"abs_" + b"0a" * 6 + b"_" + b"0a" * 24, b"AKIA" + b"Q" * 16, address):
        assert list(secrets(b"a " + secret + b" b")), secret
    assert not list(secrets(b"http://user:password-of-many-letters@example.com -----BEGIN PRIVATE KEY-----"))


@pytest.mark.parametrize("tag", SIZE_MAX)
def test_a_container_runs_without_root_on_read_only_files(tag: str) -> None:
    look = "import os, pathlib; print(os.getuid(), os.path.expanduser('~'));"
    look += "print(*(path for path in ('/', '/opt/abs', '/srv/abs') if os.access(path, os.W_OK)))"
    output = docker("run", "--rm", "--read-only", f"abs-server:{tag}", "python", "-c", look)
    assert output.splitlines() == ["10001 /srv/abs", ""]
    find = ("find", "/", "-xdev", "-type", "f", "-perm", "/6000")
    assert docker("run", "--rm", "--user", "0", f"abs-server:{tag}", *find) == ""


@pytest.mark.parametrize(
    ("tag", "variable", "constraint"),
    [("light", "LTLF_ENGINE=mona", '--ltlf=F("dog")'), ("light-fado", "REGEX_ENGINE=fado", "--regex=[a-z]+ dogs?")],
)
def test_an_engine_that_a_setting_selects_compiles(tag: str, variable: str, constraint: str) -> None:
    variables = ("--env", f"ABS_{variable}", "--tmpfs", "/tmp")
    output = docker("run", "--rm", "--read-only", *variables, f"abs-server:{tag}", "abs", "compile", constraint)
    assert "states" in output and "accepted:" in output


def test_an_absent_engine_stops_the_service_with_advice() -> None:
    command = ("abs", "serve", "||", "echo", "status=$?")
    output = docker(
        "run", "--rm", "--env", "ABS_REGEX_ENGINE=fado", "--env", "ABS_ALLOW_UNAUTHENTICATED=yes", "abs-server:cpu",
        "sh", "-c", " ".join(("exec", "2>&1;", *command)),
    )  # fmt: skip
    assert "status=" in output and "status=0" not in output and "FAdo" in output, output
