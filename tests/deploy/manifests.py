"""The manifests of ``examples/kubernetes``, as they are and as kustomize puts them together."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from typing import Any

import yaml
from tests.sources import ROOT

PLACE = ROOT / "examples" / "kubernetes"
Manifest = dict[str, Any]


def kustomize(overlay: str) -> list[Manifest] | None:
    """What ``kubectl apply -k`` would send; None: neither kustomize nor kubectl is installed."""
    if shutil.which("kustomize"):
        command = ["kustomize", "build", str(PLACE / overlay)]
    elif shutil.which("kubectl"):
        command = ["kubectl", "kustomize", str(PLACE / overlay)]
    else:
        return None
    return list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


@cache
def plain() -> dict[str, Manifest]:
    """Each manifest of a file, by place, kind and name, but for kustomize's own."""
    found = {}
    for path in sorted(PLACE.rglob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            if each["kind"] != "Kustomization":
                found[f"{path.parent.name}/{each['kind']}/{each['metadata']['name']}"] = each
    return found


def containers(manifest: Manifest) -> list[Manifest]:
    """Of a StatefulSet or a Job, those before the start among them."""
    spec = manifest["spec"]["template"]["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


WORKLOADS = {name: each for name, each in plain().items() if each["kind"] in ("StatefulSet", "Job")}
WHOLE = {name: each for name, each in WORKLOADS.items() if name != "takeover/StatefulSet/tarry"}
"""Those that are no patch of another."""
