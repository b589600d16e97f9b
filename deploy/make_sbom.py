#!/usr/bin/env python3
"""Makes CycloneDX lists of the components of an image, a build from sources and the gateway.

    deploy/make_sbom.py --image build/image >sluice.cdx.json
    deploy/make_sbom.py --image build/image --sources --gateway --out build/lists

An image's tree (deploy/image_tree.sh) has the control data of its Debian packages. The sources need
the packages of tools/packages-build.txt, in the versions of this system. The gateway needs the
packages of deploy/requirements-gateway.txt. The same input gives the same list.

Needs the packages of deploy/requirements-sbom.txt. The Dockerfile's target `sbom` makes all lists.
"""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import uuid

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = pathlib.Path(__file__).resolve().parent.parent
DISTRIBUTION = {"distro": "debian-12"}


def version():
    return re.search(r"VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text())[1]


def debian(name, number, architecture, source=None):
    """Returns the component of a Debian package."""
    qualifiers = {"arch": architecture, **DISTRIBUTION}
    if source and source != name:
        qualifiers["upstream"] = source
    purl = PackageURL("deb", "debian", name, number, qualifiers)
    return Component(type=ComponentType.LIBRARY, name=name, version=number, purl=purl,
                     bom_ref=purl.to_string())


def packages_of(tree):
    for path in sorted((tree / "var/lib/dpkg/status.d").iterdir()):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", path.read_text(), re.M))
        source = fields.get("Source", fields["Package"]).split()[0]
        yield debian(fields["Package"], fields["Version"], fields["Architecture"], source)


def programs_of(tree):
    for path in sorted((tree / "usr/local/bin").iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        yield Component(type=ComponentType.APPLICATION, name=path.name, version=version(),
                        bom_ref=f"sluice/{path.name}",
                        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)])


def packages_to_build():
    names = re.sub(r"#.*", "", (ROOT / "tools/packages-build.txt").read_text()).split()
    told = subprocess.run(
        ["dpkg-query", "-W", "-f=${Package} ${Version} ${Architecture} ${source:Package}\n",
         *names], capture_output=True, text=True, check=True).stdout
    for line in sorted(told.splitlines()):
        yield debian(*line.split())


def packages_of_python(path):
    for name, number in re.findall(r"^([\w.-]+)==(\S+)$", path.read_text(), re.M):
        purl = PackageURL("pypi", name=name.lower().replace("_", "-"), version=number)
        yield Component(type=ComponentType.LIBRARY, name=name, version=number, purl=purl,
                        bom_ref=purl.to_string())


def made(name, components):
    """Returns the list as JSON. Its serial number depends only on its contents; it has no time."""
    bom = Bom(components=components)
    bom.metadata.component = Component(type=ComponentType.APPLICATION, name=name, version=version(),
                                       bom_ref=name)
    contents = "\n".join(sorted(str(each.bom_ref.value) + "".join(h.content for h in each.hashes)
                                for each in components))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"{name}\n{contents}")
    bom.register_dependency(bom.metadata.component, components)
    listed = json.loads(JsonV1Dot6(bom).output_as_string())
    del listed["metadata"]["timestamp"]
    return json.dumps(listed, indent=1)


def of_image(tree):
    return made("sluice", [*packages_of(tree), *programs_of(tree)])


def of_sources():
    return made("sluice-sources", [*packages_to_build()])


def of_gateway():
    requirements = ROOT / "deploy/requirements-gateway.txt"
    return made("sluice-gateway", [*packages_of_python(requirements)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", type=pathlib.Path, metavar="TREE", help="list an image's tree")
    parser.add_argument("--sources", action="store_true", help="list the packages of a build")
    parser.add_argument("--gateway", action="store_true", help="list the gateway for HTTP")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER",
                        help="write the lists to this folder instead of printing the only one")
    arguments = parser.parse_args()
    lists = {}
    if arguments.image:
        lists["sluice"] = of_image(arguments.image)
    if arguments.sources:
        lists["sluice-sources"] = of_sources()
    if arguments.gateway:
        lists["sluice-gateway"] = of_gateway()
    if not arguments.out:
        if len(lists) != 1:
            parser.error("one list is printed; --out writes any number")
        return print(*lists.values())
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, text in lists.items():
        (arguments.out / f"{name}.cdx.json").write_text(text + "\n")
    return None


if __name__ == "__main__":
    main()
