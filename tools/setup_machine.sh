#!/usr/bin/env bash
# Prepares a machine for work on Sluice: installs the Debian packages of the build, of the tests and
# of an editor, installs the git hooks of .pre-commit-config.yaml, configures the preset dev, and
# generates the headers of proto/, which clangd needs. The devcontainer runs this script. It may be
# run again at any time.
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
