"""Makes the packages for ARM64, and runs their programs under qemu.

The first run compiles the programs by Debian's cross compiler, which takes about as long as the
build of the packages for x86-64.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from conftest import BUILD, SLUICE, free_port  # noqa: E402
import sluice_client  # noqa: E402
from waiting import PATIENCE_S, wait_until  # noqa: E402

PACKAGES = ROOT / "build" / "packages-arm64"
ARM64 = 183  # the field e_machine of ELF
QEMU = ["qemu-aarch64-static", "-L", ROOT / "build" / "arm64-root"]


def succeed(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages():
    if (ROOT / "build" / "no-arm64").exists():
        pytest.skip("not applicable: needs the compiler and the packages for ARM64")
    succeed(ROOT / "deploy" / "package.sh", "--arm64")
    return PACKAGES


@pytest.fixture(scope="module")
def installed(packages, tmp_path_factory):
    """The files of the Debian package."""
    folder = tmp_path_factory.mktemp("arm64")
    package, = packages.glob("*.deb")
    assert succeed("dpkg-deb", "--field", package, "Architecture").strip() == "arm64"
    succeed("dpkg-deb", "-x", package, folder)
    return folder


def machine_of(path):
    return int.from_bytes(path.read_bytes()[18:20], "little")


@contextlib.contextmanager
def daemon(*command):
    """Runs a daemon with the demo model, and yields its gRPC address."""
    grpc = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [*map(str, command), "--model", f"demo={ROOT / 'models' / 'demo'}",
         "--server.grpc.address", grpc, "--server.metrics.address", "",
         "--server.admin.address", "", "--server.lifecycle.drain-delay", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ready():
        assert process.poll() is None, process.stdout.read()
        return subprocess.run([SLUICE, "health", "--server", grpc],
                              capture_output=True).returncode == 0

    try:
        wait_until(ready)
        yield grpc
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output


def answers(grpc):
    """Returns sampled tokens with their log-probabilities, and the bytes of an embedding."""
    with sluice_client.Client(grpc) as client:
        text = client.generate("demo", "In the beginning ", max_tokens=24, temperature=0.8, seed=11)
        embedding = client.embed("demo", "And the evening and the morning were the first day")
        return text.token_ids, text.logprobs, embedding.raw


def test_the_daemon_of_the_package_gives_the_bits_of_x86(installed):
    with daemon(*QEMU, installed / "usr" / "bin" / "sluiced") as grpc:
        under_qemu = answers(grpc)
    with daemon(BUILD / "server" / "sluiced", "--cpu.profile", "cpu-avx2-f32") as grpc:
        native = answers(grpc)
    assert under_qemu == native and len(native[0]) == 24


def test_the_client_of_the_package_asks_a_daemon(installed):
    with daemon(BUILD / "server" / "sluiced") as grpc:
        assert succeed(*QEMU, installed / "usr" / "bin" / "sluice", "health",
                       "--server", grpc).strip() == "SERVING"


def test_every_program_and_library_of_the_package_is_for_arm64(installed):
    programs = list((installed / "usr" / "bin").iterdir())
    libraries = [each for each in (installed / "usr" / "lib" / "sluice").iterdir()
                 if not each.is_symlink()]
    assert len(programs) == 3 and len(libraries) > 10
    assert {machine_of(each) for each in [*programs, *libraries]} == {ARM64}
    for page in ("sluiced.1", "sluice.1"):
        assert (installed / "usr" / "share" / "man" / "man1" / page).stat().st_size > 1000


def test_the_wheel_and_the_image_name_their_architecture(packages):
    wheel, = packages.glob("sluice_server-*.whl")
    assert wheel.name.endswith("_aarch64.whl")
    with tarfile.open(packages / "sluice-image.tar") as archive:
        index = json.load(archive.extractfile("index.json"))
    assert [each["platform"] for each in index["manifests"]] == [
        {"architecture": "arm64", "os": "linux"}]
