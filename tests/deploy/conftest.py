"""Tests of deploy/ with the real tools: kubectl, promtool, Prometheus, Envoy, systemd-analyze.

build/venv/bin/python -m pytest tests/deploy
"""

import sys

from processes import DEPLOY

# The dashboards' generator imports its modules from its own folder.
sys.path.insert(0, str(DEPLOY / "grafana"))
