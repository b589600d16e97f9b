#!/usr/bin/env bash
# Prepares a machine for work on Sluice. Installs the Debian packages of the build, the tests and an
# editor, and the git hooks of .pre-commit-config.yaml. Configures the preset dev, and generates the
# headers of proto/, which clangd needs. The devcontainer runs this script. It can be run again at
# any time.
. "$(dirname "$0")/common.sh"
set -euo pipefail

install_packages tools/packages-build.txt tools/packages-test.txt tools/packages-dev.txt
say "installing the git hooks"
python3 -m venv .venv
.venv/bin/pip install -q "$(grep '^pre-commit==' tools/requirements-test.txt)"
.venv/bin/pre-commit install
say "configuring the preset dev"
cmake --preset dev
cmake --build --preset dev --target sluice_proto
