"""Makes the packages for ARM64, and runs their programs under qemu.

The first run compiles the programs by Debian's cross compiler, which takes about as long as the
build of the packages for x86-64.
"""

import json
import pathlib
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import packaged  # noqa: E402
import sluice_client  # noqa: E402
from conftest import BUILD, SLUICE  # noqa: E402
from instruction_sets import ARM64_PACKAGES, needs  # noqa: E402
from packaged import succeed  # noqa: E402

PACKAGES = ROOT / "build" / "packages-arm64"
pytestmark = needs(ARM64_PACKAGES)
ARM64 = 183  # the field e_machine of ELF
EMULATOR = "qemu-aarch64-static"
QEMU = [EMULATOR, "-L", ROOT / "build" / "arm64-root"]
IMAGE = ROOT / "build" / "image-arm64"  # the file tree of which deploy/package.sh makes the image


@pytest.fixture(scope="module")
def packages():
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


def daemon(*command):
    """Runs a daemon with the demo model, and yields its gRPC address."""
    return packaged.daemon(
        lambda *options: [*command, "--model", f"demo={ROOT / 'models' / 'demo'}", *options])


def answers(grpc):
    """Returns sampled tokens with their log-probabilities, and the bytes of an embedding."""
    with sluice_client.Client(grpc) as client:
        text = client.generate("demo", "In the beginning ", max_tokens=24, temperature=0.8, seed=11)
        embedding = client.embed("demo", "And the evening and the morning were the first day")
        return text.token_ids, text.logprobs, embedding.raw


@pytest.mark.parametrize("kind", ["package", "image"])
def test_the_daemon_gives_the_bits_of_x86(installed, kind):
    command = {"package": [*QEMU, installed / "usr" / "bin" / "sluiced"],
               # The loader and all libraries are the image's own.
               "image": [EMULATOR, "-L", IMAGE, IMAGE / "usr" / "local" / "bin" / "sluiced"]}
    with daemon(*command[kind]) as grpc:
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
