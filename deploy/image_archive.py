#!/usr/bin/env python3
"""Writes an image's tree as an OCI image archive, without Docker and without a registry.

  deploy/image_tree.sh build/release TREE
  deploy/image_archive.py TREE FILE

`podman load`, `docker load` (25 or later), `skopeo copy oci-archive:FILE` and `ctr image import`
read the file. The settings are the Dockerfile's. Users and times are fixed, so the same tree gives
the same file.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shlex
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
# The field e_machine of ELF, and the name that images use.
ARCHITECTURES = {62: "amd64", 183: "arm64"}


def settings(dockerfile, version, revision):
    """Returns the configuration that the Dockerfile's stage `image` gives a container.

    An OCI image has no health check; Kubernetes has probes in its place."""
    stage = dockerfile[dockerfile.index("FROM scratch AS image"):].split("\nFROM ")[0]
    stage = re.sub(r"\\\n\s*", "", stage).replace("${VERSION}", version)
    instructions = {}
    for name, words in re.findall(r"^([A-Z]+) (.*)$", stage.replace("${REVISION}", revision), re.M):
        instructions.setdefault(name, words)
    labels = dict(word.split("=", 1) for word in shlex.split(instructions["LABEL"]))
    return {
        "User": instructions["USER"],
        "Env": shlex.split(instructions["ENV"]),
        "Entrypoint": json.loads(instructions["ENTRYPOINT"]),
        "Cmd": json.loads(instructions["CMD"]),
        "ExposedPorts": {f"{port}/tcp": {} for port in instructions["EXPOSE"].split()},
        "Labels": labels,
    }


def plain(entry):
    """Sets the owner and the time of a file in the layer."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = EPOCH
    return entry


def layer_of(tree):
    """Returns the tree as a tar file, with its files in a fixed order."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(tree.rglob("*")):
            archive.add(path, str(path.relative_to(tree)), recursive=False, filter=plain)
    return made.getvalue()


def architecture_of(tree):
    header = (tree / "usr" / "local" / "bin" / "sluiced").read_bytes()[:20]
    return ARCHITECTURES[int.from_bytes(header[18:20], "little")]


class Archive:
    """An OCI image layout in a tar file."""

    def __init__(self, path):
        self._tar = tarfile.open(path, "w", format=tarfile.GNU_FORMAT)

    def add(self, name, data):
        entry = plain(tarfile.TarInfo(name))
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))

    def add_blob(self, kind, data):
        """Adds a blob and returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.add(f"blobs/sha256/{digest}", data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "size": len(data),
                "digest": f"sha256:{digest}"}

    def close(self):
        self._tar.close()


def encode(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def write(tree, path, version, revision):
    layer = layer_of(tree)
    architecture = architecture_of(tree)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    archive = Archive(path)
    config = archive.add_blob("config.v1+json", encode({
        "architecture": architecture, "os": "linux", "created": created,
        "config": settings((ROOT / "Dockerfile").read_text(), version, revision),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": created, "created_by": "deploy/image_archive.py"}],
    }))
    packed = archive.add_blob("layer.v1.tar+gzip", gzip.compress(layer, 6, mtime=0))
    manifest = archive.add_blob("manifest.v1+json", encode({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": [packed]}))
    archive.add("index.json", encode({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest | {
            "platform": {"architecture": architecture, "os": "linux"},
            "annotations": {"org.opencontainers.image.ref.name": version,
                            "io.containerd.image.name": f"docker.io/library/sluice:{version}"}}]}))
    archive.add("oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
    archive.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=pathlib.Path, help="what deploy/image_tree.sh made")
    parser.add_argument("file", type=pathlib.Path, help="the archive to write")
    parser.add_argument("--revision", default="unknown", help="the commit, for the image's label")
    given = parser.parse_args()
    version = re.search(r"project\(sluice VERSION (\S+)",
                        (ROOT / "CMakeLists.txt").read_text())[1]
    write(given.tree, given.file, version, given.revision)


if __name__ == "__main__":
    main()
