"""Tests Prometheus' configuration, rules and alerts with promtool, and the runbooks."""

import re
import shutil
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
    return result.stdout + result.stderr


def runbooks():
    """Returns the entries of runbooks.md as {heading in lower case: text}."""
    parts = re.split(r"^## (\w+)\n", (PROMETHEUS / "runbooks.md").read_text(), flags=re.M)
    return {title.lower(): text for title, text in zip(parts[1::2], parts[2::2])}


def test_rules_are_valid():
    promtool("check", "rules", expressions.RULES, expressions.ALERTS)


def test_configuration_is_valid():
    # It warns of a file of targets that does not exist.
    assert "WARNING" not in promtool("check", "config", PROMETHEUS / "prometheus.yml")


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


@pytest.mark.parametrize("path", [
    "prometheus/prometheus.yml", "prometheus/prometheus_kubernetes.yml",
    "kubernetes/components/monitoring/pod_monitor.yaml",
    "kubernetes/overlays/kserve/pod_monitor.yaml"])
def test_scrapes_of_daemons_drop_the_list_of_adapters(path):
    """Each change of the list would be a new series."""
    config = yaml.safe_load((DEPLOY / path).read_text())
    if "spec" in config:
        scrape, = config["spec"]["podMetricsEndpoints"]
        rules, label = scrape["metricRelabelings"], "sourceLabels"
    else:
        scrape = next(each for each in config["scrape_configs"] if each["job_name"] == "sluice")
        rules, label = scrape["metric_relabel_configs"], "source_labels"
    assert rules == [{label: ["__name__"], "regex": "sluice_lora_requests_info", "action": "drop"}]


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


def test_every_aggregation_keeps_the_namespace():
    """Namespaces have rules in common, and may have models, pods and routes of the same name."""
    for where, expression in expressions.recorded() + expressions.of_alerts():
        for aggregation, by in re.findall(
                r"\b(sum|avg|min|max|count)\b *(?:by \(([^)]*)\))?", expression):
            assert "namespace" in by.split(", "), f"{where}: {aggregation} by {by}"
        for on in re.findall(r"\bon \(([^)]*)\)", expression):
            assert "namespace" in on.split(", "), f"{where}: on {on}"


ADDRESS = "https://wiki.example/sluice/runbooks"


def test_runbooks_get_an_address(tmp_path):
    for name in ("make_rule.py", "rules.yml", "alerts.yml"):
        shutil.copy(PROMETHEUS / name, tmp_path)
    for address in ("https://old.example/a", ADDRESS):
        subprocess.run([sys.executable, tmp_path / "make_rule.py", address], check=True)
    promtool("check", "rules", tmp_path / "alerts.yml")
    alerts = expressions.rules(tmp_path / "alerts.yml")
    for changed, alert in zip(alerts, expressions.rules(expressions.ALERTS), strict=True):
        url = f"{ADDRESS}#{alert['annotations']['runbook']}"
        alert["annotations"]["runbook_url"] = url
        assert changed == alert
    helm = subprocess.run(
        [tool("helm"), "template", "sluice", DEPLOY / "helm" / "sluice", "--set",
         f"prometheusRule.enabled=true,prometheusRule.runbooks={ADDRESS}"],
        capture_output=True, text=True, check=True)
    rule, = [each for each in yaml.safe_load_all(helm.stdout) if each["kind"] == "PrometheusRule"]
    made = yaml.safe_load((tmp_path / "prometheus_rule.yaml").read_text())
    assert rule["spec"] == made["spec"]


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


CALLERS = sorted(reason.name for reason in reasons() if reason.at_fault == "caller")


def test_the_error_budget_leaves_out_exactly_the_errors_of_callers():
    records = {rule["record"]: rule["expr"] for rule in expressions.rules(expressions.RULES)}
    answered = records["model:sluice_answered_by_code:rate5m"]
    assert excluded("reason", answered) == CALLERS
    assert excluded("code", answered) == callers_codes()


def test_alerts_and_dashboards_divide_the_reasons_as_the_table_does():
    """Each expression that excludes or selects several reasons names exactly the callers'."""
    divided, names = set(), {reason.name for reason in reasons()}
    for where, expression in expressions.everything():
        for selector in re.findall(r"sluice_rejected_total\{([^}]*)\}", expression):
            assert set(re.findall(r'\breason="(\w+)"', selector)) <= names, where
        matchers = re.findall(r'\breason(?:!~|=~)"([^"]*)"', expression)
        if matchers and "sluice_rejected_total" in expression:
            assert sorted("|".join(matchers).split("|")) == CALLERS, where
            divided.add(where.split(" (")[0])
    assert divided == {"alert SluiceTurnsRequestsAway", "overview: Refused requests"}


# 60 answers and 12,000 refusals or errors a minute, of one reason or code for each model.
ANSWERS, REFUSALS = 60, 12_000


def budget_case(series, fails, refused_for=""):
    """Returns a case of promtool: model m has the given failing series."""
    ratio = REFUSALS / (ANSWERS + REFUSALS) if fails else 0
    away = bool(refused_for) and fails
    return {
        "interval": "1m",
        "input_series": [
            {"series": 'sluice_requests_total{job="sluice",pod="a",model="m",code="OK"}',
             "values": f"0+{ANSWERS}x30"},
            {"series": series, "values": f"0+{REFUSALS}x30"},
        ],
        "promql_expr_test": [{
            "expr": f'abs(model:sluice_error_ratio:rate5m{{model="m"}} - {ratio}) < bool 1e-9',
            "eval_time": "20m",
            "exp_samples": [{"labels": '{model="m"}', "value": 1}],
        }],
        "alert_rule_test": [
            {"alertname": "SluiceErrorBudgetBurn", "eval_time": "10m", "exp_alerts": [{
                "exp_labels": {"model": "m", "severity": "page", "window": "1h"},
                "exp_annotations": {"summary": "m: 99.5% of the requests failed over 1h",
                                    "runbook": "sluiceerrorbudgetburn"},
            }] if fails else []},
            {"alertname": "SluiceTurnsRequestsAway", "eval_time": "20m", "exp_alerts": [{
                "exp_labels": {"model": "m", "reason": refused_for, "severity": "ticket"},
                "exp_annotations": {
                    "summary": f"m: 200 requests a second are refused ({refused_for})",
                    "runbook": "sluiceturnsrequestsaway"},
            }] if away else []},
        ],
    }


def test_refusals_and_errors_spend_the_budget_if_the_table_blames_the_server(tmp_path):
    labels = 'job="sluice",pod="a",model="m"'
    cases = [
        budget_case(f'sluice_rejected_total{{{labels},reason="{reason.name}"}}',
                    reason.at_fault == "server", reason.name)
        for reason in reasons()
    ]
    cases += [
        budget_case(f'sluice_requests_total{{{labels},code="{code}"}}',
                    code not in callers_codes())
        for code in sorted({reason.status for reason in reasons()})
    ]
    file = tmp_path / "reasons_test.yml"
    file.write_text(yaml.safe_dump({
        "rule_files": [str(expressions.RULES), str(expressions.ALERTS)],
        "evaluation_interval": "1m",
        "group_eval_order": yaml.safe_load(RULE_TESTS[-1].read_text())["group_eval_order"],
        "tests": cases,
    }))
    promtool("test", "rules", file)


def test_the_gateway_answers_5xx_only_if_the_table_blames_the_server():
    """Statuses that say whose fault it is follow the table. 429 is left to the daemon's reasons."""
    sys.path.insert(0, str(ROOT / "clients" / "python"))
    from sluice_client.gateway.call import _STATUSES as statuses

    excluded_codes = {"501"}
    records = {rule["record"]: rule["expr"] for rule in expressions.rules(expressions.RULES)}
    assert set(re.findall(r'code!="(\d+)"', records["route:sluice_gateway_failed:rate5m"])) \
        == excluded_codes
    for reason in reasons():
        status = str(statuses.get(reason.status, 500))
        if reason.name == "out_of_range":
            continue  # The reason of a model's file, which a call of the gateway cannot get.
        if status != "429":
            failed = status.startswith("5") and status not in excluded_codes
            assert failed == (reason.at_fault == "server"), reason.name
