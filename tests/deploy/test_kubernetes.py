"""The manifests for Kubernetes: what they say is what Kubernetes and ``tarry serve`` take, and asks for few rights."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.deploy.containerfile import settings_of, stages
from tests.deploy.manifests import PLACE, WHOLE, WORKLOADS, Manifest, containers, kustomize, plain
from tests.deploy.options import check_command, setting_names
from tests.sources import ROOT

from tarry.cli.main import run

VERSIONS = ("1.29", "1.33", "1.37")
"""From the first one in which the access mode ReadWriteOncePod is stable."""
IMAGE = stages(ROOT / "Containerfile")[-1]
BASE, TAKEOVER = plain()["base/StatefulSet/tarry"], plain()["takeover/StatefulSet/tarry"]
SECRET = re.compile(r"secret|password|token=|AKIA|access_key", re.IGNORECASE)


def quantity(text: str) -> int:
    """Bytes of ``512Mi``."""
    number, unit = text[:-2], text[-2:]
    return int(number) << {"Mi": 20, "Gi": 30}[unit]


def pod_of(manifest: Manifest) -> dict[str, Any]:
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_each_manifest(version: str) -> None:
    for name, manifest in plain().items():
        if name != "takeover/StatefulSet/tarry":  # a patch
            kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("overlay", ["base", "takeover"])
def test_kubernetes_takes_what_kustomize_makes(overlay: str) -> None:
    made = kustomize(overlay)
    if made is None:
        pytest.skip("neither kustomize nor kubectl is installed")
    for manifest in made:
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)
    kinds = [each["kind"] for each in made]
    assert kinds.count("StatefulSet") == 1
    [stateful] = [each for each in made if each["kind"] == "StatefulSet"]
    names = {each["name"] for each in pod_of(stateful)["volumes"]}
    names |= {each["metadata"]["name"] for each in stateful["spec"].get("volumeClaimTemplates", ())}
    for container in containers(stateful):
        assert {mount["name"] for mount in container["volumeMounts"]} <= names
    if overlay == "takeover":
        assert "PodDisruptionBudget" not in kinds
        assert stateful["spec"]["replicas"] == 2
        assert "httpGet" not in containers(stateful)[0]["livenessProbe"]


def test_what_kustomize_is_told_is_there() -> None:
    for path in PLACE.glob("*/kustomization.yaml"):
        told = yaml.safe_load(path.read_text())
        for resource in told["resources"]:
            assert (path.parent / resource).exists()
        for patch in told.get("patches", ()):
            assert "patch" in patch or (path.parent / patch["path"]).exists()


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_command_and_setting_is_one_that_there_is(name: str) -> None:
    for container in containers(WORKLOADS[name]):
        if "command" in container:
            lines = re.findall(r"tarry (?:serve|status|identity)[^|;&>]*", container["args"][0])
            assert lines
            commands = [shlex.split(line) for line in lines]
        else:
            commands = [["tarry", *container["args"]]]
        for probe in (container.get("startupProbe", {}), container.get("livenessProbe", {})):
            commands += [shlex.split(line) for line in re.findall(r"tarry [^>;]*", str(probe.get("exec", "")))]
        for words in commands:
            check_command(words)
        given = [each["name"] for each in container.get("env", ())]
        settings = [each.removeprefix("TARRY_").lower() for each in given if each.startswith("TARRY_")]
        assert set(settings) <= setting_names()
    bucket = plain()["takeover/ConfigMap/tarry-bucket"]["data"]
    assert {key.removeprefix("TARRY_").lower() for key in bucket if key.startswith("TARRY_")} <= setting_names()


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_secret_is_in_a_manifest(name: str) -> None:
    for container in containers(WORKLOADS[name]):
        assert not SECRET.search(json.dumps([container.get("command"), container.get("args"), container.get("env")]))
    assert not any(each["kind"] == "Secret" for each in plain().values())


@pytest.mark.parametrize("name", WHOLE)
def test_a_pod_has_few_rights(name: str) -> None:
    pod = pod_of(WHOLE[name])
    user = int(next(each for each in IMAGE if each.name == "USER").text.split(":")[0])
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == user
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in containers(WHOLE[name]):
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        data = settings_of(IMAGE, "ENV")["TARRY_DATA"]
        assert any(data.startswith(mount["mountPath"]) for mount in container["volumeMounts"])


def test_ports_and_probes_are_those_of_the_image() -> None:
    [container] = [each for each in containers(BASE) if each["name"] == "tarry"]
    environment = settings_of(IMAGE, "ENV")
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {
        name: int(environment[setting].rpartition(":")[2])
        for name, setting in (("native", "TARRY_FLIGHT"), ("http", "TARRY_HTTP"), ("metrics", "TARRY_METRICS"))
    }
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    for name in ("tarry", "tarry-pods"):
        for port in plain()[f"base/Service/{name}"]["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


def test_times_are_those_of_the_unit_of_systemd_or_more() -> None:
    unit = configparser.ConfigParser(strict=False)
    unit.read(ROOT / "examples" / "systemd" / "tarry.service")
    service = unit["Service"]
    assert pod_of(BASE)["terminationGracePeriodSeconds"] >= int(service["TimeoutStopSec"].removesuffix("s"))
    for each in (containers(BASE)[-1], containers(TAKEOVER)[-1]):
        probe = each["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 60 * int(
            service["TimeoutStartSec"].removesuffix("min")
        )


def test_resources_are_enough_for_the_load_that_they_name(capsys: pytest.CaptureFixture[str]) -> None:
    text = (PLACE / "base" / "statefulset.yaml").read_text()
    [line] = re.findall(r"# tarry (size .*)", text)
    assert run([*shlex.split(line), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    requests = containers(BASE)[-1]["resources"]["requests"]
    assert quantity(requests["memory"]) >= 2 * said["memory_bytes"]
    [claim] = BASE["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert quantity(claim["spec"]["resources"]["requests"]["storage"]) >= 2 * said["disk_bytes"]
