#!/usr/bin/env bash
# Puts the models of KServe's, KEDA's and the Prometheus operator's resources into VENV/schemas,
# where tests/deploy looks for them: beside the environment, because cloudcoil brings a pytest
# plugin along. KServe's are read as text, so the many packages that it depends on are left out.
set -euo pipefail
venv=${1:?usage: tools/install_manifest_schemas.sh VENV}
install() { "$venv/bin/pip" install -q --upgrade --target "$venv/schemas" "$@"; }
install cloudcoil==0.6.0 cloudcoil-models-keda==2.16.1.0 cloudcoil-models-prometheus-operator==0.80.1.0
install --no-deps kserve==0.21.0
