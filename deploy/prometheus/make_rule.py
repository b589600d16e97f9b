#!/usr/bin/env python3
"""Writes prometheus_rule.yaml: rules.yml and alerts.yml as an object of the Prometheus operator.

Run it after a change of these files; a test compares the three. With the address of a page that has
the entries of runbooks.md, `make_rule.py ADDRESS` first sets runbook_url of each alert in
alerts.yml to ADDRESS#ENTRY."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
RULE = HERE / "prometheus_rule.yaml"

_HEAD = """\
# Written by make_rule.py from rules.yml and alerts.yml. components/monitoring explains the label
# "release".
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: sluice
  labels:
    app.kubernetes.io/name: sluice
    release: prometheus
spec:
  groups:
"""


def rule():
    """Returns the text of the object, in which each file's groups keep their text and comments."""
    groups = [
        (HERE / name).read_text().split("\ngroups:\n", 1)[1] for name in ("rules.yml", "alerts.yml")
    ]
    return _HEAD + re.sub(r"^(?=.)", "  ", "".join(groups), flags=re.M)


def set_runbooks(address):
    """Writes the annotation runbook_url of each alert in alerts.yml, in place of an earlier one."""
    path = HERE / "alerts.yml"
    text = re.sub(r"^ *runbook_url: .*\n", "", path.read_text(), flags=re.M)
    url = rf"\g<0>\1runbook_url: {address}#\2" + "\n"
    path.write_text(re.sub(r"^( *)runbook: (.*)\n", url, text, flags=re.M))


if __name__ == "__main__":
    for each in sys.argv[1:]:
        set_runbooks(each)
    RULE.write_text(rule())
