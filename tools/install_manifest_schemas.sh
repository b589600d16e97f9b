#!/usr/bin/env bash
# Installs Python models of the resources of KServe, KEDA and the Prometheus operator into
# VENV/schemas, where tests/deploy reads them. They are not installed into the environment itself,
# because cloudcoil comes with a pytest plugin. KServe's models are read as text, so that the many
# packages that KServe depends on are not installed.
set -euo pipefail
venv=${1:?usage: tools/install_manifest_schemas.sh VENV}
install() { "$venv/bin/pip" install -q --upgrade --target "$venv/schemas" "$@"; }
install cloudcoil==0.6.0 cloudcoil-models-keda==2.16.1.0 cloudcoil-models-prometheus-operator==0.80.1.0
install --no-deps kserve==0.20.0
