"""Tests the image's file tree, which is built without Docker.

Its programs run in namespaces with the Dockerfile's settings: on a read-only root, as an
unprivileged user, as process 1. The tests need root, or sudo without a password."""

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

from processes import BUILD, DEMO, DEPLOY, PATIENCE_S, ROOT, SLUICE, Process, free_port, get, tool

DOCKERFILE = (ROOT / "Dockerfile").read_text()
AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "--non-interactive", "--preserve-env"]


def instruction(name):
    """Returns the words of an instruction in the image's last stages, such as CMD."""
    stage = DOCKERFILE[DOCKERFILE.index("FROM scratch AS image") :]
    found = re.findall(rf"^{name} (.*)$", stage, re.M)
    assert len(found) == 1, f"{name}: {found}"
    words = found[0].split("CMD ")[-1]
    return json.loads(words) if words.startswith("[") else words


def test_the_cuda_image_requires_a_driver_for_its_runtime():
    requirements = (ROOT / "tools" / "requirements-cuda.txt").read_text()
    version = re.search(r"^nvidia-cuda-runtime==(\d+\.\d+)", requirements, re.M).group(1)
    stage = DOCKERFILE.split("FROM image AS cuda")[1].split("FROM ")[0]
    assert f'NVIDIA_REQUIRE_CUDA="cuda>={version}"' in stage


def build_tree(folder):
    result = subprocess.run(
        [DEPLOY / "image_tree.sh", BUILD, folder], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def tree():
    return build_tree(ROOT / "build" / "image")


def inside(tree, *command, models="", own_processes=True):
    """Returns the command line that runs `command` in the image."""
    namespaces = [
        "unshare",
        "--mount",
        *(["--pid", "--fork", "--kill-child"] if own_processes else []),
    ]
    enter = ROOT / "tests" / "deploy" / "enter_image.sh"
    return [*AS_ROOT, *namespaces, enter, tree, models, instruction("USER"), *command]


class Container(Process):
    """The image's daemon on free ports."""

    def __init__(self, tree, folder, models="", arguments=None):
        self.tree = tree
        self.grpc, self.http = (f"127.0.0.1:{free_port()}" for _ in range(2))
        addresses = ["--server.grpc.address", self.grpc, "--server.metrics.address", self.http]
        command = [*instruction("ENTRYPOINT"), *(arguments or instruction("CMD")), *addresses]
        super().__init__(
            inside(tree, *command, "--server.admin.address=", models=models),
            folder / "container.log",
        )
        self.wait_ready(lambda: get(self.http, "/readyz") is not None)

    def daemon(self):
        """Returns the process id, outside the container, of the container's process 1."""
        return max(self._descendants(self.process.pid))

    def _descendants(self, pid):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(each) for each in file.read().split()]
        return children + [below for each in children for below in self._descendants(each)]

    def healthy(self):
        """Returns whether Docker's health check succeeds."""
        command = inside(self.tree, *instruction("HEALTHCHECK"))
        environment = os.environ | {"SLUICE_SERVER": self.grpc}
        return subprocess.run(command, env=environment, capture_output=True).returncode == 0

    def infer(self, model):
        command = [SLUICE, "--server", self.grpc, "infer", "--model", model, "--ids", "1,2,3,4"]
        return subprocess.run(command, capture_output=True, text=True)

    def __exit__(self, *_):
        if self.process.poll() is None:
            subprocess.run([*AS_ROOT, "kill", "-KILL", str(self.daemon())], check=True)
            self.process.wait()


def status(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file)


def test_image_has_the_licences_of_its_parts(tree):
    documents = tree / "usr" / "share" / "doc"
    own = documents / "sluice"
    assert (own / "copyright").read_text() == (ROOT / "LICENSE").read_text()
    texts = [each.read_text() for each in documents.rglob("*copyright")]
    named = set(re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", "".join(texts)))
    assert len(named) > 5 and named <= {each.name for each in own.iterdir()}
    assert (own / "libcli11-dev.copyright").is_file()


def test_image_serves_its_model_without_privileges_or_writable_files(tree, tmp_path):
    with Container(tree, tmp_path) as container:
        answer = container.infer("demo")
        assert answer.returncode == 0, answer.stderr
        assert container.healthy()
        seen = status(container.daemon())
        assert set(seen["Uid"].split()) == set(seen["Gid"].split()) == {"10001"}
        assert seen["NSpid"].split()[-1] == "1"
        assert int(seen["CapEff"], 16) == 0 and not seen["Groups"].strip()
        with open(f"/proc/{container.daemon()}/mountinfo") as file:
            root = next(line.split() for line in file if line.split()[4] == "/")
        assert root[5].split(",")[0] == "ro"
        # Process 1 has no default signal actions, so the daemon must handle SIGTERM itself.
        subprocess.run([*AS_ROOT, "kill", "-TERM", str(container.daemon())], check=True)
        assert container.process.wait(PATIENCE_S) == 0, container.log.read_text()
        assert not container.healthy()


def test_the_image_serves_the_models_mounted_on_models(tree, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(DEMO, models / "mine", ignore=shutil.ignore_patterns("training", "*.py"))
    for folder in (tmp_path, models):
        folder.chmod(0o755)
    with Container(tree, tmp_path, models, ["--model", "mine=/models/mine"]) as container:
        assert container.infer("mine").returncode == 0
        assert container.infer("demo").returncode != 0


def test_two_builds_of_the_tree_are_equal(tree, tmp_path):
    def archive(folder):
        command = ["tar", "--sort=name", "-c", "-C", folder, "."]
        return subprocess.run(command, capture_output=True, check=True).stdout

    assert archive(build_tree(tmp_path / "again")) == archive(tree)


@pytest.fixture(scope="module")
def archive(tree, tmp_path_factory):
    """The image as an OCI archive, with its parts by name."""
    file = tmp_path_factory.mktemp("archive") / "image.tar"
    subprocess.run([sys.executable, DEPLOY / "image_archive.py", tree, file], check=True)
    with tarfile.open(file) as parts:
        return file, {each.name: parts.extractfile(each).read() for each in parts.getmembers()}


def blob(parts, descriptor):
    """Returns a blob after a check of its size and digest."""
    kind, digest = descriptor["digest"].split(":")
    data = parts[f"blobs/{kind}/{digest}"]
    assert hashlib.sha256(data).hexdigest() == digest and len(data) == descriptor["size"]
    return data


def test_the_archive_is_an_oci_image_with_the_settings_of_the_dockerfile(archive):
    _, parts = archive
    assert json.loads(parts["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    entry, = json.loads(parts["index.json"])["manifests"]
    manifest = json.loads(blob(parts, entry))
    config = json.loads(blob(parts, manifest["config"]))
    layer, = manifest["layers"]
    assert len(parts) == 2 + len([entry, manifest["config"], layer]), "no other blobs"
    uncompressed = gzip.decompress(blob(parts, layer))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(uncompressed).hexdigest()}"]
    assert config["os"] == "linux" and config["architecture"] == entry["platform"]["architecture"]
    assert config["architecture"] == {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    settings = config["config"]
    assert settings["Entrypoint"] == instruction("ENTRYPOINT")
    assert settings["User"] == instruction("USER")
    assert settings["Env"] == ["PATH=/usr/local/bin"]
    ports = {f"{each}/tcp" for each in instruction("EXPOSE").split()}
    assert set(settings["ExposedPorts"]) == ports
    assert settings["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert settings["Cmd"] == ["--model", "demo=/models/demo"]


def test_the_archive_has_the_files_of_the_tree(archive, tree, tmp_path):
    _, parts = archive
    entry, = json.loads(parts["index.json"])["manifests"]
    layer, = json.loads(blob(parts, entry))["layers"]
    packed = tmp_path / "layer.tar.gz"
    packed.write_bytes(blob(parts, layer))
    with tarfile.open(packed) as files:
        assert all(each.uid == each.gid == 0 for each in files.getmembers())
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-x", "-p", "-C", tmp_path / "unpacked", "-f", packed], check=True)
    listing = ["find", ".", "-mindepth", "1", "-printf", r"%P %M %l %T@\n"]

    def listed(folder):
        found = subprocess.run(listing, cwd=folder, capture_output=True, text=True, check=True)
        return sorted(found.stdout.splitlines())

    assert listed(tmp_path / "unpacked") == listed(tree)
    subprocess.run(["diff", "-r", "--no-dereference", tmp_path / "unpacked", tree], check=True)


def test_two_archives_of_a_tree_are_equal(archive, tree, tmp_path):
    subprocess.run([sys.executable, DEPLOY / "image_archive.py", tree, tmp_path / "again"],
                   check=True)
    assert (tmp_path / "again").read_bytes() == archive[0].read_bytes()


def test_a_missing_library_is_reported(tree, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(tree, broken, symlinks=True)
    (library,) = broken.glob("usr/lib/*/libspdlog.so.1.10")
    library.unlink()
    check = subprocess.run([DEPLOY / "check_image_tree.sh", broken], capture_output=True, text=True)
    assert check.returncode == 1 and "libspdlog.so.1.10" in check.stderr


def test_the_image_has_no_other_programs(tree):
    """The image has no shell and no interpreter; its loader is among the libraries."""
    assert sorted(each.name for each in (tree / "usr" / "local" / "bin").iterdir()) == [
        "sluice",
        "sluice-analysis",
        "sluiced",
    ]
    assert not (tree / "usr" / "bin").exists() and not (tree / "bin").exists()
    set_user = [
        each for each in tree.rglob("*") if each.lstat().st_mode & 0o6000 and not each.is_symlink()
    ]
    assert not set_user


def test_hadolint_accepts_the_dockerfile():
    result = subprocess.run([tool("hadolint"), ROOT / "Dockerfile"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
