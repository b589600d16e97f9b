"""Collects every PromQL expression in deploy/, with its location."""

import json
import re

import yaml

from processes import DEPLOY

RULES = DEPLOY / "prometheus" / "rules.yml"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))


def rules(path):
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def recorded():
    """Returns [(where, expression)] for the recording rules."""
    return [(f"rule {rule['record']}", rule["expr"]) for rule in rules(RULES)]


def of_alerts():
    return [(f"alert {rule['alert']}", rule["expr"]) for rule in rules(ALERTS)]


def of_dashboards(rate_interval="15s"):
    """Returns the panels' queries as Grafana sends them with all variables set to "All"."""
    found = []
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                expression = re.sub(r"\$(namespace|model|version|pod)\b", ".*", target["expr"])
                expression = expression.replace("$__rate_interval", rate_interval)
                assert "$" not in expression, expression
                found.append(
                    (f"{path.stem}: {panel['title']} ({target['legendFormat']})", expression)
                )
    return found


def of_variables():
    """Returns [(where, selector, label)] for each variable label_values(selector, label)."""
    found = []
    for path in DASHBOARDS:
        for variable in json.loads(path.read_text())["templating"]["list"]:
            if variable["type"] != "query":
                continue
            selector, label = re.fullmatch(
                r"label_values\((.*), (\w+)\)", variable["query"]["query"]
            ).groups()
            selector = re.sub(r"\$(namespace|model)\b", ".*", selector)
            found.append((f"{path.stem}: ${variable['name']}", selector, label))
    return found


def of_autoscalers():
    """Returns the queries of KEDA without the pods of the Deployment, and the queries of
    prometheus-adapter for the HPA."""
    keda = yaml.safe_load(
        (DEPLOY / "kubernetes" / "overlays" / "keda" / "scaled_object.yaml").read_text()
    )
    pods = re.compile(r',namespace="default",pod=~"[^"]*"')
    found = [("keda", pods.sub("", trigger["metadata"]["query"]))
             for trigger in keda["spec"]["triggers"]]
    adapter = yaml.safe_load((DEPLOY / "prometheus" / "adapter_rules.yaml").read_text())
    for rule in adapter["rules"]["custom"]:
        filled = rule["metricsQuery"]
        for place, value in {
            "Series": rule["seriesQuery"].partition("{")[0],
            "LabelMatchers": 'job="sluice"',
            "GroupBy": "pod",
        }.items():
            filled = filled.replace(f"<<.{place}>>", value)
        found.append((f"adapter: {rule['name']['as']}", filled))
    return found


def names(expression):
    """Returns the names of the metrics and recorded series in an expression."""
    without_labels = re.sub(r"\{[^}]*\}", "", expression)
    return set(re.findall(r"\b(?:(?:model|route):)?sluice_\w+(?::\w+)?|\bup\b", without_labels))


def everything():
    return recorded() + of_alerts() + of_dashboards() + of_autoscalers()
