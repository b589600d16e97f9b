"""Tests Prometheus' configuration, rules and alerts with promtool, and the runbooks."""

import re
import subprocess
import sys

import pytest
import yaml

import expressions
from processes import DEPLOY, ROOT, tool

sys.path.insert(0, str(ROOT / "tools"))
from reasons import callers_codes, reasons

PROMETHEUS = DEPLOY / "prometheus"
RULE_TESTS = sorted((ROOT / "tests" / "deploy").glob("alerts*_test.yml"))
METRIC_NAMES = ROOT / "proto" / "metric_names.h"
GATEWAY_METRICS = ROOT / "clients" / "python" / "sluice_client" / "gateway" / "serving.py"


def promtool(*arguments):
    result = subprocess.run(
        [tool("promtool"), *map(str, arguments)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def runbooks():
    """Returns the entries of runbooks.md as {heading in lower case: text}."""
    parts = re.split(r"^## (\w+)\n", (PROMETHEUS / "runbooks.md").read_text(), flags=re.M)
    return {title.lower(): text for title, text in zip(parts[1::2], parts[2::2])}


def test_rules_are_valid():
    promtool("check", "rules", expressions.RULES, expressions.ALERTS)


def test_configuration_is_valid():
    promtool("check", "config", PROMETHEUS / "prometheus.yml")


def test_cluster_configuration_is_valid(tmp_path):
    """Checks everything except Kubernetes discovery, which Debian's Prometheus does not have."""
    config = yaml.safe_load((PROMETHEUS / "prometheus_kubernetes.yml").read_text())
    assert [each.pop("kubernetes_sd_configs") for each in config["scrape_configs"]] == [
        [{"role": "pod"}]
    ]
    config["rule_files"] = [str(PROMETHEUS / name) for name in config["rule_files"]]
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    promtool("check", "config", path)


@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_and_stay_silent(path):
    promtool("test", "rules", path)


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_is_silent():
    fired, silent = set(), set()
    for path in RULE_TESTS:
        for case in yaml.safe_load(path.read_text())["tests"]:
            for check in case["alert_rule_test"]:
                severities = {each["exp_labels"]["severity"] for each in check["exp_alerts"]}
                fired |= {(check["alertname"], severity) for severity in severities}
                if not severities:
                    silent.add(check["alertname"])
    alerts = expressions.rules(expressions.ALERTS)
    assert fired == {(alert["alert"], alert["labels"]["severity"]) for alert in alerts}
    assert silent == {alert["alert"] for alert in alerts}


def test_every_alert_has_a_runbook_with_instructions():
    entries = runbooks()
    alerts = expressions.rules(expressions.ALERTS)
    assert {alert["annotations"]["runbook"] for alert in alerts} == set(entries)
    for alert in alerts:
        assert alert["annotations"]["runbook"] == alert["alert"].lower()
    for title, text in entries.items():
        assert "Look at" in text and re.search(
            r"\bDo[:,]", text
        ), f"{title} has no instructions for checks and actions"


def test_every_metric_is_declared_or_recorded():
    """Daemon, gateway or recording rules define each name in rules, alerts and dashboards."""
    declared = set(re.findall(r'"(sluice_\w+)"', METRIC_NAMES.read_text()))
    for kind, name in re.findall(r'(\w+)\(\s*"(sluice_gateway_\w+)"', GATEWAY_METRICS.read_text()):
        declared.add(f"{name}_total" if kind == "Counter" else name)
    declared |= {f"{name}_{part}" for name in declared for part in ("bucket", "sum", "count")}
    recorded = {rule["record"] for rule in expressions.rules(expressions.RULES)}
    for where, expression in expressions.everything():
        unknown = expressions.names(expression) - declared - recorded - {"up"}
        assert not unknown, f"{where} selects {unknown}"


def excluded(label, expression):
    """Returns the values that the negative matchers of a label exclude."""
    matchers = re.findall(rf'\b{label}!~"([^"]*)"', expression)
    return sorted(value for matcher in matchers for value in matcher.split("|"))


def test_the_error_budget_leaves_out_exactly_the_errors_of_callers():
    records = {rule["record"]: rule["expr"] for rule in expressions.rules(expressions.RULES)}
    answered = records["model:sluice_answered_by_code:rate5m"]
    callers = sorted(reason.name for reason in reasons() if reason.at_fault == "caller")
    assert excluded("reason", answered) == callers
    assert excluded("code", answered) == callers_codes()


def test_every_reason_that_rules_alerts_and_dashboards_select_exists():
    names = {reason.name for reason in reasons()}
    found = set()
    for where, expression in expressions.everything():
        for selector in re.findall(r"sluice_rejected_total\{([^}]*)\}", expression):
            found |= set(re.findall(r'reason="(\w+)"', selector))
    assert found and found <= names
