"""Tests the component lists (SBOM) of the image, the sources and the gateway."""

import json
import re
import subprocess
import sys

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from processes import DEPLOY, ROOT

sys.path.insert(0, str(DEPLOY))
import make_sbom

@pytest.fixture
def tree(tmp_path):
    """The parts of an image tree that the list describes; one package has two names."""
    packages = tmp_path / "var" / "lib" / "dpkg" / "status.d"
    packages.mkdir(parents=True)
    (packages / "libssl3").write_text("Package: libssl3\nSource: openssl\nVersion: 3.0.19-1\n"
                                      "Architecture: amd64\nDescription: TLS\n More of it: much\n")
    programs = tmp_path / "usr" / "local" / "bin"
    programs.mkdir(parents=True)
    (programs / "sluiced").write_bytes(b"a program")
    return tmp_path


def test_every_list_is_valid_cyclonedx_and_the_same_each_time(tree):
    for make in (make_sbom.of_sources, make_sbom.of_gateway, lambda: make_sbom.of_image(tree)):
        text = make()
        fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
        assert fault is None, fault
        assert make() == text


def test_the_image_has_its_packages_and_programs(tree):
    listed = json.loads(make_sbom.of_image(tree))
    components = {each["name"]: each for each in listed["components"]}
    assert set(components) == {"libssl3", "sluiced"}
    assert components["libssl3"]["purl"] == (
        "pkg:deb/debian/libssl3@3.0.19-1?arch=amd64&distro=debian-12&upstream=openssl")
    assert components["sluiced"]["hashes"][0]["content"] == (
        "d69ea8cda2433733c1ce02de65da8f48e6a3dbba6bb18876a2062908e54ef7cb")


def test_different_program_changes_the_list(tree):
    before = json.loads(make_sbom.of_image(tree))["serialNumber"]
    (tree / "usr" / "local" / "bin" / "sluiced").write_bytes(b"another")
    assert json.loads(make_sbom.of_image(tree))["serialNumber"] != before


def test_sources_and_gateway_list_the_pinned_packages():
    built = {each["name"] for each in json.loads(make_sbom.of_sources())["components"]}
    wanted = set(re.sub(r"#.*", "", (ROOT / "tools/packages-build.txt").read_text()).split())
    assert built == wanted
    gateway = json.loads(make_sbom.of_gateway())["components"]
    pinned = re.findall(r"^[\w.-]+==\S+$", (DEPLOY / "requirements-gateway.txt").read_text(), re.M)
    assert sorted(f"{each['name']}=={each['version']}" for each in gateway) == sorted(pinned)


def test_dockerfile_command_writes_all_lists_with_the_installed_packages(tree, tmp_path):
    docker = (ROOT / "Dockerfile").read_text()
    command = re.search(r"/opt/sbom/bin/python (deploy/make_sbom\.py .*)", docker)[1]
    assert "-r deploy/requirements-sbom.txt" in docker
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "-r",
                    DEPLOY / "requirements-sbom.txt"], check=True)
    lists = tmp_path / "lists"
    command = command.replace("/tree", str(tree)).replace("/list", str(lists))
    subprocess.run([python, *command.split()], cwd=ROOT, check=True)
    assert {path.name for path in lists.iterdir()} == {
        "sluice.cdx.json", "sluice-sources.cdx.json", "sluice-gateway.cdx.json"}
    assert json.loads((lists / "sluice.cdx.json").read_text()) == json.loads(
        make_sbom.of_image(tree))
