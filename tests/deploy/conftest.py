"""Tests deploy/ with real tools: kubectl, promtool, Prometheus, Envoy, systemd-analyze.

build/venv/bin/python -m pytest tests/deploy
"""

import sys

from processes import DEPLOY

# The dashboard generator imports modules from its own folder.
sys.path.insert(0, str(DEPLOY / "grafana"))
