"""The manifests of deploy/ agree with Kubernetes, code and images."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.broker.redis.broker import RedisBroker
from app.observability.metrics import exposition
from app.settings import QUEUES, Settings
from tests.deploy import dockerfile
from tests.servers.redis_server import running_server

FOLDER = dockerfile.ROOT / "deploy" / "kubernetes"
VERSION = "1.30"
CUSTOM = ("keda.sh/v1alpha1", "kustomize.config.k8s.io/v1beta1")  # no part of Kubernetes' own schemas
WAITING = "{{abs}}:queue:{}:v7:waiting"
COUNTED = (  # as KEDA counts whatever has the name that it is given
    "local cmd = {zset='zcard', set='scard', list='llen', hash='hlen', none='llen'} "
    "return redis.call(cmd[redis.call('type', KEYS[1]).ok], KEYS[1])"
)
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


ALL = [document for name in FILES for document in documents(name)]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [document for document in ALL if document["kind"] in kinds]


def name(document: dict[str, Any]) -> str:
    return str(document["metadata"]["name"])


WORKLOADS = {name(one): one["spec"]["template"]["spec"] for one in of_kind("Deployment", "StatefulSet")}
OURS = {label: spec for label, spec in WORKLOADS.items() if label != "redis"}
STAGES = {"light": "light", "cpu": "inference", "cuda": "inference"}  # of the Dockerfile, by the tag of an image
CONTAINERS = {label: spec["containers"][0] for label, spec in WORKLOADS.items()}


@pytest.mark.parametrize("file", FILES)
def test_a_manifest_is_valid(file: str) -> None:
    checked = 0
    for document in documents(file):
        if document["apiVersion"] not in CUSTOM:
            kubernetes_validate.validate(document, VERSION, strict=True)
            checked += 1
    assert checked or file in ("keda.yaml", "kustomization.yaml")


def test_a_manifest_with_a_mistake_is_not() -> None:
    document = documents("api.yaml")[1]
    document["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_everything_is_applied_but_the_template_of_the_secrets() -> None:
    kustomization = documents("kustomization.yaml")[0]
    assert set(kustomization["resources"]) == set(FILES) - {"kustomization.yaml", "secrets.yaml"}
    assert {value for one in documents("secrets.yaml") for value in one["stringData"].values()} == {"FILL-IN"}


def test_workers_scale_with_their_queue_length() -> None:
    for document, queue in zip(of_kind("ScaledObject"), QUEUES, strict=True):
        (trigger,) = document["spec"]["triggers"]
        metadata = trigger["metadata"]
        assert (trigger["type"], metadata["listName"], metadata["username"]) == ("redis", WAITING.format(queue), "keda")
        assert int(metadata["listLength"]) > 0 and metadata["address"] == "redis:6379"
        assert CONTAINERS[document["spec"]["scaleTargetRef"]["name"]]["command"] == ["abs", "worker", queue]
        assert document["spec"]["minReplicaCount"] >= 1


def test_the_autoscaler_reads_the_existing_queue_keys() -> None:
    async def submit(url: str) -> None:
        broker = RedisBroker(url, Settings.of(secret=b"s" * 16))
        for queue, count in zip(QUEUES, (2, 3), strict=True):
            for number in range(count):
                await broker.submit(queue, f"{queue} {number}", b"body")
        await broker.close()

    with running_server() as server:
        asyncio.run(submit(server.url))
        for queue, count in zip(QUEUES, (2, 3), strict=True):
            assert server.ask("EVAL", COUNTED, "1", WAITING.format(queue)) == f":{count}"


@pytest.mark.parametrize("label", OURS)
def test_a_container_runs_what_its_image_holds(label: str) -> None:
    container = CONTAINERS[label]
    repository, _, tag = container["image"].partition(":")
    assert repository == "abs-server" and STAGES[tag] in dockerfile.stages()
    assert container["command"][0] == "abs" and (tag == "light") == (label != "inference-worker")
    compose = dockerfile.compose()["services"][label]
    assert (compose["command"], compose["image"]) == (container["command"], container["image"])
    user = int(dockerfile.steps(STAGES[tag], "USER")[-1].partition(":")[0])
    assert OURS[label]["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": user, "seccompProfile": {"type": "RuntimeDefault"}
    }


def test_the_server_runs_as_compose_runs_it() -> None:
    assert CONTAINERS["redis"]["command"] == dockerfile.compose()["services"]["redis"]["command"]
    assert CONTAINERS["redis"]["image"] == dockerfile.compose()["services"]["redis"]["image"]


@pytest.mark.parametrize("label", OURS)
def test_every_variable_is_a_setting(label: str) -> None:
    known = {f"ABS_{field.upper()}" for field in Settings().values()}
    files = {"ABS_SECRET_FILE", "ABS_BROKER_FILE", "ABS_STORE_FILE"}
    given = {variable["name"]: variable["value"] for variable in CONTAINERS[label]["env"]}
    assert set(given) <= known | files
    secrets = {name(one): set(one["stringData"]) for one in documents("secrets.yaml")}
    volumes = {one["name"]: one for one in OURS[label]["volumes"]}
    held = {
        file for source in volumes["secrets"]["projected"]["sources"] for file in secrets[source["secret"]["name"]]
    }
    assert {Path(given[file]).name for file in files} == held
    assert all(Path(given[file]).parent == Path("/run/secrets") for file in files)


@pytest.mark.parametrize("label", OURS)
def test_the_termination_grace_period_exceeds_the_shutdown_grace(label: str) -> None:
    container = CONTAINERS[label]
    shutdown_grace_s = float(next(one["value"] for one in container["env"] if one["name"] == "ABS_SHUTDOWN_GRACE_S"))
    before_s = float(container["lifecycle"]["preStop"]["exec"]["command"][1]) if "lifecycle" in container else 0.0
    assert OURS[label]["terminationGracePeriodSeconds"] >= before_s + shutdown_grace_s + 10
    assert ("lifecycle" in container) == (label == "api")


@pytest.mark.parametrize("label", WORKLOADS)
def test_a_container_may_do_no_more_than_it_must(label: str) -> None:
    container, spec = CONTAINERS[label], WORKLOADS[label]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }
    assert spec["automountServiceAccountToken"] is False and spec["securityContext"]["runAsNonRoot"] is True
    assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
    assert not spec.get("hostNetwork") and not any("hostPath" in volume for volume in spec.get("volumes", ()))


def test_probes_and_services_name_ports_that_are_there() -> None:
    for label, container in CONTAINERS.items():
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe].get("httpGet", {"port": next(iter(ports))})["port"] in ports
        for service in of_kind("Service"):
            if service["spec"]["selector"] == {"app": label}:
                assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert {name(one) for one in of_kind("Service")} == {"api", "redis"}


def test_liveness_probes_do_not_depend_on_the_server() -> None:
    for label, path in (("api", "/health"), ("compile-worker", "/live"), ("inference-worker", "/live")):
        assert CONTAINERS[label]["livenessProbe"]["httpGet"]["path"] == path
        assert CONTAINERS[label]["startupProbe"]["httpGet"]["path"] == path


def test_every_deployment_has_a_disruption_budget_and_an_autoscaler() -> None:
    assert {name(one) for one in of_kind("PodDisruptionBudget")} == set(OURS)
    scaled = {one["spec"]["scaleTargetRef"]["name"] for one in of_kind("HorizontalPodAutoscaler", "ScaledObject")}
    assert scaled == set(OURS)
    assert not any("replicas" in one["spec"] for one in of_kind("Deployment"))  # each apply would undo the scaling


def test_the_network_denies_by_default_and_redis_admits_services() -> None:
    policies = {name(one): one["spec"] for one in of_kind("NetworkPolicy")}
    assert policies["nothing-else"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies["redis"]["ingress"][0]["from"][0]["podSelector"]["matchExpressions"][0]["values"] == list(OURS)


def patched_worker(variant: str) -> dict[str, Any]:
    """The pods of the inference worker in a variant of the manifests."""
    kustomization = yaml.safe_load((FOLDER / variant / "kustomization.yaml").read_text(encoding="utf-8"))
    (patch,), (base,) = kustomization["patches"], kustomization["resources"]
    assert patch["target"]["name"] == "inference-worker"
    worker = copy.deepcopy(OURS["inference-worker"]) if base == ".." else patched_worker(base.removeprefix("../"))
    for step in yaml.safe_load(patch["patch"]):
        there: Any = {"spec": {"template": {"spec": worker}}}
        *parts, last = step["path"].strip("/").replace("~1", "~").split("/")
        for part in parts:
            there = there[int(part)] if part.isdigit() else there[part]
        key = last.replace("~", "/")
        if last == "-":
            there.append(step["value"])
        else:
            assert step["op"] == "add" or key in there, step
            there[key] = step["value"]
    return worker


def test_the_gpu_variants_change_a_worker_that_exists() -> None:
    for variant, gpus, processes in (("gpu", 1, None), ("tensor-parallel", 2, "2")):
        worker = patched_worker(variant)
        container = worker["containers"][0]
        assert STAGES[container["image"].partition(":")[2]] in dockerfile.stages()
        assert container["resources"]["limits"]["nvidia.com/gpu"] == gpus
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert environment.get("ABS_TENSOR_PARALLEL") == processes
        document = next(one for one in of_kind("Deployment") if name(one) == "inference-worker")
        changed = copy.deepcopy(document)
        changed["spec"]["template"]["spec"] = worker
        kubernetes_validate.validate(changed, VERSION, strict=True)


def test_alerts_speak_of_metrics_that_exist() -> None:
    rules = yaml.safe_load((dockerfile.ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    known = set(re.findall(r"^# TYPE (\w+)", exposition().decode(), re.MULTILINE))
    for rule in rules["groups"][0]["rules"]:
        named = set(re.findall(r"\babs_\w+", rule["expr"])) - {"abs_"}
        assert named <= known, (rule["alert"], named - known)
        assert rule["annotations"]["summary"] and rule["labels"]["severity"] in ("page", "ticket")


def test_scrape_targets_are_services_of_the_compose_file() -> None:
    example = yaml.safe_load((dockerfile.ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    services = dockerfile.compose()["services"]
    for job in example["scrape_configs"]:
        for target in job["static_configs"][0]["targets"]:
            service, _, port = target.partition(":")
            described = json.dumps(services[service])
            assert port in described, (service, port)
