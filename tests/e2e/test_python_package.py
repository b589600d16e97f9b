"""Builds the wheel of the Python client and uses it in new virtual environments."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
import venv
import zipfile

import pytest
from conftest import CLIENT, ROOT, free_port
from waiting import PATIENCE_S, wait_until

# Two sets of versions: the oldest that pyproject.toml allows, and a later major version of each
# package. gRPC has only one major version.
OLD = ["grpcio==1.49.1", "protobuf==4.25.0", "numpy==1.26.4"]
NEW = ["grpcio==1.85.1", "protobuf==7.36.2", "numpy==2.4.6"]

PROGRAM = """
import asyncio, sys
import google.protobuf, grpc, numpy
from sluice_client import AsyncClient, Client
assert "PATH_OF_THE_SOURCES" not in sys.path
address, *versions = sys.argv[1:]
assert [grpc.__version__, google.protobuf.__version__, numpy.__version__] == versions
with Client(address) as client:
    answer = client.generate("demo", "In the beginning", max_tokens=8)
    parts = client.stream("demo", "In the beginning", max_tokens=8)
    assert "".join(part.text for part in parts) == answer.text
    vectors = numpy.asarray(client.embed("demo", ["a", "b"], normalize=True))
    assert vectors.dtype == numpy.float32 and abs((vectors[0] ** 2).sum() - 1) < 1e-5
async def again():
    async with AsyncClient(address) as client:
        return await client.generate("demo", "In the beginning", max_tokens=8)
repeated = asyncio.run(again())
assert (repeated.token_ids, repeated.logprobs) == (answer.token_ids, answer.logprobs)
print(answer.text)
""".replace("PATH_OF_THE_SOURCES", str(CLIENT))


def succeed(*command, **options):
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    # Building writes files into the source folder, so build a copy.
    sources = tmp_path_factory.mktemp("sources") / "python"
    shutil.copytree(CLIENT, sources, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    built = tmp_path_factory.mktemp("wheel")
    succeed(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", built, sources)
    (made,) = built.glob("*.whl")
    return made


def test_the_wheel_has_the_licence(wheel):
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert [each for each in zipfile.ZipFile(wheel).namelist() if each.endswith("LICENSE")]


def test_the_wheel_is_pure_python_with_types(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    here = {
        str(each.relative_to(CLIENT))
        for each in CLIENT.glob("sluice_client/**/*")
        if each.is_file() and each.suffix != ".pyc"
    }
    assert here <= set(names) and "sluice_client/py.typed" in here


@pytest.mark.parametrize("versions", [OLD, NEW], ids=["old", "new"])
def test_wheel_works_with_two_major_versions_of_each_dependency(wheel, versions, demo, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    succeed(sys.executable, "-m", "pip", "--python", python, "install", "-q",
            "--only-binary", ":all:", wheel, *versions)
    numbers = [each.partition("==")[2] for each in versions]
    printed = succeed(python, "-c", PROGRAM, demo.grpc, *numbers, cwd=tmp_path,
                      env={"PATH": "/usr/bin:/bin"})
    assert printed.strip()


def test_gateway_image_installs_and_runs_the_gateway(wheel, demo, tmp_path):
    """Runs the commands of the Dockerfile's gateway stage, without Docker."""
    stage = (ROOT / "Dockerfile").read_text().split("FROM packages AS gateway")[1].split("FROM ")[0]
    program, arguments = (
        json.loads(re.search(rf"^{name} (\[.*\])$", stage, re.M).group(1))
        for name in ("ENTRYPOINT", "CMD")
    )
    venv.create(tmp_path / "gateway", with_pip=False)
    python = tmp_path / "gateway" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    requirements = ROOT / "deploy" / "requirements-gateway.txt"
    succeed(*pip, "install", "-q", "--only-binary", ":all:", "--no-deps", "-r", requirements)
    succeed(*pip, "install", "-q", "--no-deps", f"{wheel}[gateway,tracing]")
    succeed(*pip, "check")
    port = free_port()
    addresses = {"localhost:8001": demo.grpc, "0.0.0.0:8000": f"127.0.0.1:{port}",
                 "0.0.0.0:8005": f"127.0.0.1:{free_port()}"}
    assert addresses.keys() <= set(arguments)
    (program,) = (each.replace("/opt", str(tmp_path)) for each in program)
    process = subprocess.Popen([program, *(addresses.get(each, each) for each in arguments),
                                "--otlp-endpoint", f"http://127.0.0.1:{free_port()}/v1/traces"],
                               env={"PATH": "/usr/bin:/bin"})

    def ready():
        assert process.poll() is None
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").status == 200
        except OSError:
            return False

    wait_until(ready)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
