"""docker-compose.yml: its promises, commands and environments, and what Compose makes of it.

Without a container engine: tests/deploy/containers.py says what stands in for one. test_running_containers.py has one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.settings import BUILT_IN_MODEL, Settings
from tests.deploy import dockerfile
from tests.deploy.containers import Service, ask_server, make_secrets, seconds
from tests.deploy.fake_engine import fake_engine
from tests.deploy.package_index import pip_install
from tests.deploy.test_kubernetes import COUNTED
from tests.environment import settings_in
from tests.servers.abs_up import short_folder
from tests.servers.demo_requests import REQUESTS
from tests.servers.forkserver import WITH_MODEL, ForkServer
from tests.servers.nginx import SHIPPED
from tests.servers.processes import free_port, until

ROOT = dockerfile.ROOT
COMPOSE = dockerfile.compose()
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = [name for name in SERVICES if name not in ("redis", "proxy")]
PROFILES = sorted({profile for service in SERVICES.values() for profile in service.get("profiles", ())})
GPUS = {"Driver": "nvidia", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}  # -1: all
IMAGES = {  # the other services have the image without PyTorch
    "inference-worker": ("inference", "abs-server:cpu"), "inference-worker-gpu": ("inference", "abs-server:cuda")
}
START_S_MAX = 180.0
STARTED = ("redis", "api", "compile-worker", "inference-worker")


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_may_do_no_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] and service["healthcheck"]["test"] and service["restart"] == "unless-stopped"
    assert not service.get("privileged") and "network_mode" not in service


def test_only_the_proxy_is_reachable_and_only_locally() -> None:
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "proxy": ["127.0.0.1:8000:8080"]
    }
    networks = {name: service["networks"] for name, service in SERVICES.items() if service["networks"] != ["inside"]}
    assert networks == {"proxy": ["front", "outside"], "api": ["inside", "front"]}
    assert COMPOSE["networks"]["inside"] == COMPOSE["networks"]["front"] == {"internal": True}


def test_the_proxy_runs_the_shipped_configuration() -> None:
    mounts = dict(volume.removesuffix(":ro").split(":") for volume in SERVICES["proxy"]["volumes"])
    for outside, inside in mounts.items():
        assert (ROOT / outside).is_file() and Path(inside).parent == Path("/etc/nginx")
        assert Path(inside).name in {path.name for path in SHIPPED.iterdir()}
    upstream = (ROOT / next(out for out, inside in mounts.items() if inside.endswith("upstream.conf"))).read_text()
    assert "server api:8000 max_conns=" in upstream
    assert settings_in({"ABS_BEHIND_PROXY": SERVICES["api"]["environment"]["ABS_BEHIND_PROXY"]}).server.behind_proxy


@pytest.mark.parametrize("name", OURS)
def test_the_stop_grace_period_exceeds_the_shutdown_grace(name: str) -> None:
    settings = settings_in({key: text for key, text in SERVICES[name]["environment"].items() if "FILE" not in key})
    assert seconds(SERVICES[name]["stop_grace_period"]) >= settings.process.shutdown_grace_s + 10


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting(name: str) -> None:
    files = {"ABS_SECRET_FILE", "ABS_BROKER_FILE", "ABS_STORE_FILE"}
    assert set(SERVICES[name]["environment"]) <= files | {f"ABS_{field.upper()}" for field in Settings().values()}


@pytest.mark.parametrize("named", [None, "mine"])
@pytest.mark.parametrize("name", OURS)
def test_the_model_keeps_its_name_inside_the_container(name: str, named: str | None) -> None:
    given = {"ABS_MODEL_NAME": named} if named else {}
    service = dockerfile.compose(given)["services"][name]
    folder = service["environment"]["ABS_MODEL"]
    assert Path(folder).name == (named or Path(BUILT_IN_MODEL).name)
    assert f"./{Path(BUILT_IN_MODEL).relative_to(ROOT)}:{folder}:ro" in service["volumes"]


@pytest.mark.parametrize("name", OURS)
def test_an_image_is_a_stage_of_the_dockerfile(name: str) -> None:
    build, image = SERVICES[name]["build"], SERVICES[name]["image"]
    assert build["target"] in dockerfile.stages()
    assert (build["target"], image) == IMAGES.get(name, ("light", "abs-server:light"))
    assert ("TORCH_BACKEND" in build["args"]) == (name == "inference-worker-gpu")


def test_the_gpu_service_is_opt_in() -> None:
    assert {name for name, service in SERVICES.items() if service.get("profiles")} == {"inference-worker-gpu"}
    assert SERVICES["inference-worker-gpu"]["command"] == SERVICES["inference-worker"]["command"]


@pytest.fixture(scope="module")
def compose_package() -> Path:
    """The folder of docker-compose 1.29.2 and what it imports. The first run installs it."""
    requirements = Path(__file__).with_name("compose.txt")
    folder = ROOT / ".cache" / "compose" / hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as new:
            pip_install(
                "docker-compose, which reads docker-compose.yml,", "--require-hashes", "--no-build-isolation",
                "--target", f"{new}/packages", "--requirement", str(requirements),
            )  # fmt: skip
            Path(new, "packages").rename(folder)
    return folder


COMPOSE_UP = """import os, sys
from compose.cli.main import main
for place, profile in enumerate(sys.argv[1:]):
    if place + 1 < len(sys.argv[1:]) and os.fork():  # a process each, from one that has imported Compose
        status = os.waitstatus_to_exitcode(os.wait()[1])
        if status:
            sys.exit(status)
        continue
    address, _, profiles = profile.rpartition("#")
    os.environ |= {"DOCKER_HOST": address, "COMPOSE_PROFILES": profiles}
    sys.argv = ["docker-compose", "up", "--no-start"]
    main()
    break
"""


def test_compose_requests_every_container_from_the_engine(compose_package: Path, tmp_path: Path) -> None:
    profiles = ["", *PROFILES]
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(fake_engine(Path(stack.enter_context(short_folder())))) for _ in profiles]
        orders = [f"{address}#{profile}" for profile, (address, _) in zip(profiles, engines, strict=True)]
        done = subprocess.run(
            (sys.executable, "-c", COMPOSE_UP, *orders), cwd=ROOT, capture_output=True, text=True, timeout=60,
            env=os.environ | {"PYTHONPATH": str(compose_package)},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for profile, (_, containers) in zip(profiles, engines, strict=True):
        services = {name for name, service in SERVICES.items() if service.get("profiles", [profile]) == [profile]}
        assert containers.keys() == services, profile
        for name, container in containers.items():
            assert container["Image"] == SERVICES[name]["image"] and container["HostConfig"]["ReadonlyRootfs"]
            requests = container["HostConfig"].get("DeviceRequests", [])
            assert requests == ([GPUS] if SERVICES[name].get("deploy") else [])


def test_each_service_gets_only_the_secrets_it_needs() -> None:
    given = {name: set(service.get("secrets", ())) for name, service in SERVICES.items()}
    assert given == {
        "api": {"signing", "api_url"}, "compile-worker": {"signing", "compile_url"},
        "inference-worker": {"signing", "generate_url"}, "inference-worker-gpu": {"signing", "generate_url"},
        "redis": {"users"}, "proxy": set(),
    }
    assert set().union(*given.values()) == set(COMPOSE["secrets"])


class ForkedService(Service):
    """A service whose process is forked: its imports would take seconds. The database is started as usual."""

    def start_from(self, fork_server: ForkServer, folder: Path) -> None:
        program, *words = self.described["command"]
        if program == "abs":
            arguments = ["app.main", *map(self.here, words)]
            self.process = fork_server.start(arguments, self.environment(), folder / "log", folder=folder)  # type: ignore[assignment]
        else:
            self.start()


class Deployed:
    """The services of the compose file as processes of this machine."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.folder = folder
        self.fork_server = ForkServer(WITH_MODEL)
        self.secrets = folder / "secrets"
        self.key = make_secrets(self.secrets, "--server", f"127.0.0.1:{port}", check=True).stdout.strip()
        outside = {f"/run/secrets/{name}": str(self.secrets / name) for name in COMPOSE["secrets"]}
        outside["/run/keyring"] = str(self.secrets / "keyring")
        mounted = {name: _mounted(SERVICES[name], outside) for name in STARTED}
        self.services = {name: ForkedService(name, mounted[name], outside, folder) for name in STARTED}
        self.services["redis"].ports["6379"] = str(port)

    def start(self) -> None:
        """Start services in order of dependency, and await their health."""
        for names in (["redis"], [name for name in STARTED if name != "redis"]):
            for name in names:
                self.services[name].start_from(self.fork_server, self.folder / name)
            for name in names:
                until(self.services[name].healthy, f"{name} healthy", START_S_MAX, poll_s=1.0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.services['api'].ports['8000']}"


def _mounted(service: dict[str, Any], outside: dict[str, str]) -> dict[str, Any]:
    """A service without the mounts that the test has already put elsewhere."""
    kept = [volume for volume in service.get("volumes", ()) if volume.split(":")[1] not in outside]
    return service | {"volumes": kept}


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    with short_folder() as folder:
        deployed = Deployed(folder)
        try:
            deployed.start()
            yield deployed
        finally:
            for service in deployed.services.values():
                service.end()
            deployed.fork_server.close()


def test_the_secrets_are_hidden_and_made_only_once(deployed: Deployed) -> None:
    assert deployed.secrets.stat().st_mode & 0o777 == 0o700
    users = (deployed.secrets / "users").read_text()
    for role in ("api", "compile", "generate"):
        password = (deployed.secrets / f"{role}_url").read_text().split(":")[2].partition("@")[0]
        assert len(password) >= 32 and password not in users and f"user {role} " in users
    assert deployed.key not in (deployed.secrets / "keyring" / "keys").read_text()
    again = make_secrets(deployed.secrets)
    assert again.returncode == 1 and "remove it" in again.stderr


def test_secrets_are_readable_inside_under_a_strict_umask(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder, check=True, umask=0o077)
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


def test_the_services_answer_the_requests_of_the_readme(deployed: Deployed) -> None:
    with httpx2.Client(base_url=deployed.url, timeout=60, trust_env=False) as http:
        assert http.post("/generate", json=REQUESTS[0]).status_code == 401
        for body in REQUESTS:
            answer = http.post("/generate", json=body, headers={"Authorization": f"Bearer {deployed.key}"})
            assert answer.status_code == 200, answer.text
            assert answer.json()["choices"][0]["text"] and answer.json()["model"] == "captions"


def test_the_redis_server_requires_credentials_and_denies_extra_commands(deployed: Deployed) -> None:
    port = int(deployed.services["redis"].ports["6379"])
    assert ask_server(port, b"GET {abs}:a\r\n").startswith(b"-NOAUTH")
    password = (deployed.secrets / "api_url").read_text().split(":")[2].partition("@")[0]
    login = f"AUTH api {password}\r\n".encode()
    for command in (b"FLUSHALL\r\n", b"KEYS *\r\n", b"CONFIG SET appendonly no\r\n", b"SET elsewhere 1\r\n"):
        assert b"-NOPERM" in ask_server(port, login + command), command


def test_the_autoscaler_reads_only_queue_lengths(deployed: Deployed) -> None:
    port = int(deployed.services["redis"].ports["6379"])
    login = f"AUTH keda {(deployed.secrets / 'keda_password').read_text()}\r\n".encode()
    counted = COUNTED.encode()
    for queue in (b"compile", b"generate"):
        key = b"{abs}:queue:%b:v7:waiting" % queue
        script = b"*4\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n$1\r\n1\r\n$%d\r\n%b\r\n" % (len(counted), counted, len(key), key)
        assert b":0\r\n" in ask_server(port, login + script)
    queue = b"{abs}:queue:compile:v7"
    for command in (b"HLEN %b:outside" % queue, b"GET {abs}:secret", b"DEL %b:waiting" % queue):
        assert b"-NOPERM" in ask_server(port, login + command + b"\r\n")


def test_each_service_stops_within_its_grace_period(deployed: Deployed) -> None:
    for name in reversed(STARTED):
        assert deployed.services[name].stop() == 0, deployed.services[name].log()
