"""Alert rules and the dashboard: each metric and label is one that a broker serves, and each alert has its page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.ports import free_port
from tests.sources import ROOT
from tests.waiting import wait_until

from tarry.base.histogram import Histogram
from tarry.fronts.metrics.front import MetricsFront
from tarry.fronts.metrics.shared_logs import shared_logs
from tarry.testing import TestBroker, open_broker

RULES = ROOT / "examples" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "examples" / "grafana" / "tarry.json"
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
PANELS = json.loads(DASHBOARD.read_text())["panels"]
EXPRESSIONS = [rule["expr"] for rule in ALERTS] + [each["expr"] for panel in PANELS for each in panel["targets"]]
NAME = r"\b(?:tarry|process)_[a-z_]+\b"
OF_PROMETHEUS = {"instance", "job", "le"}
Labels = dict[str, set[str]]

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


@pytest.fixture
def front(tmp_path: Path) -> Iterator[MetricsFront]:
    """Of a broker that has had something of everything that has labels."""
    with open_broker(tmp_path / "data") as broker:
        _fill(broker)
        front = MetricsFront.start(broker, "127.0.0.1:0")
        yield front
        front.stop()


def _fill(broker: TestBroker) -> None:
    broker.set_push("s", topic="a", url="https://example.com/")
    broker.schedule("a", b"x")
    broker.step()
    broker.receive("a", "g")
    broker.set_pipeline_status({"supervisor": {"state": "running", "restarts": 0}, "reported_ms": 1})


def served(front: MetricsFront) -> Labels:
    """The labels of each metric, by the name that Prometheus gives it."""
    text = httpx.get(f"http://{front.address}/metrics").text
    log = {"leased": True, "epoch": 1, "answered_before_ms": 1, "requests": {"put": 1}}
    of_owners = shared_logs({"log": log, "rounds_us": Histogram().to_json()})
    found: Labels = {}
    for family in [*text_string_to_metric_families(text), *of_owners]:
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
        if family.type == "counter":  # those with labels are there once somebody was counted
            found.setdefault(f"{family.name}_total", set())
        found.setdefault(family.name, set())
    return found


def documented() -> Labels:
    """The labels of each metric in the page."""
    text = (ROOT / "docs" / "operations-metrics.md").read_text()
    return {name: set(labels.split(",")) for name, labels in re.findall(r"`(tarry_[a-z_]+)\{([a-z,]+)\}`", text)}


def test_each_metric_is_one_that_a_broker_serves(front: MetricsFront) -> None:
    there = served(front)
    for expression in EXPRESSIONS:
        names = re.findall(NAME, expression)
        assert names or expression.startswith("up")
        assert set(names) <= there.keys(), expression


def test_each_label_is_one_of_its_metric(front: MetricsFront) -> None:
    there = served(front)
    for expression in EXPRESSIONS:
        of_metrics: set[str] = set(OF_PROMETHEUS)
        for name in re.findall(NAME, expression):
            of_metrics |= there[name] | documented().get(name, set())
        used = re.findall(r"(\w+)=~?\"", expression)
        used += [label for by in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in by.split(", ")]
        assert set(used) <= of_metrics, expression
    for rule in ALERTS:
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) - OF_PROMETHEUS
        for label in shown:
            assert any(label in there[n] | documented().get(n, set()) for n in re.findall(NAME, rule["expr"])), rule


def test_each_alert_has_its_place_in_a_page() -> None:
    page = (ROOT / "docs" / "operations-metrics.md").read_text()
    for rule in ALERTS:
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        text = (ROOT / path).read_text()
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
        assert not anchor or anchor in anchors, rule["annotations"]["runbook"]
        assert f"| `{rule['alert']}` |" in page
    assert set(re.findall(r"^\| `(Tarry\w+)` \|", page, re.MULTILINE)) == {rule["alert"] for rule in ALERTS}


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken
        assert all(x < 24 for x, _ in cells)
        taken |= cells
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


@needs_promtool
def test_rules_are_rules_and_fire_when_they_should() -> None:
    for command in (["check", "rules", RULES.name], ["test", "rules", "alerts_test.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=RULES.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_expressions_of_the_dashboard_are_expressions(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": each.replace("$__rate_interval", "5m")}
        for number, each in enumerate(EXPRESSIONS)
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.rest
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_prometheus_reads_a_broker_with_identities_and_asks_the_rules(tmp_path: Path) -> None:
    data, port, metrics = tmp_path / "data", free_port(), free_port()
    tarry = [sys.executable, "-m", "tarry"]

    def identity(*words: str) -> str:
        command = [*tarry, "identity", "create", *words, "--data", str(data)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    identity("admin", "--all", "--no-keep")
    (tmp_path / "tarry.token").write_text(identity("prometheus", "-g", "look *"))
    config: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "tarry",
                "authorization": {"credentials_file": "tarry.token"},
                "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}],
            }
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    served = [*tarry, "serve", "--data", str(data), "--pipeline", "off", "--flight", "", "--metrics"]
    prometheus = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb"]
    prometheus.append(f"--web.listen-address=127.0.0.1:{port}")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    with (
        subprocess.Popen([*served, f"127.0.0.1:{metrics}"], **quiet) as broker,
        subprocess.Popen(prometheus, **quiet) as watching,
    ):
        try:
            wait_until(lambda: _value(port, 'tarry_serving{job="tarry"}') == 1)
            rules = httpx.get(f"http://127.0.0.1:{port}/api/v1/rules").json()["data"]["groups"][0]["rules"]
            assert {each["name"] for each in rules} == {each["alert"] for each in ALERTS}
            broker.terminate()
            broker.wait()
            wait_until(lambda: "TarryDown" in _alerts(port))
        finally:
            broker.kill()
            watching.terminate()


def _ask(port: int, path: str, **query: str) -> Any:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/{path}", params=query).raise_for_status()
    except httpx.HTTPError:  # it starts
        return None
    return answer.json().get("data")


def _value(port: int, query: str) -> float | None:
    found = (_ask(port, "query", query=query) or {}).get("result")
    return float(found[0]["value"][1]) if found else None


def _alerts(port: int) -> set[str]:
    return {each["labels"]["alertname"] for each in (_ask(port, "alerts") or {}).get("alerts", ())}
