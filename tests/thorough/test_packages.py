"""Installs the Debian package and the wheel in clean roots of Debian 12 and 13.

debootstrap makes the roots, without a compiler. SLUICE_TEST_ROOTS names a folder that keeps them
for the next run. SLUICE_TEST_PACKAGES names a folder with packages that are tested in place of the
build's. The tests need root.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import packaged  # noqa: E402
from conftest import BUILD, free_port  # noqa: E402
from packaged import named_licences, succeed  # noqa: E402
from waiting import PATIENCE_S  # noqa: E402

MIRROR = "http://deb.debian.org/debian"
CONFIGURATION = "etc/sluice/sluice.yaml"
LADDER = "var/lib/sluice/ladder"


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """The folder of the packages."""
    if given := os.environ.get("SLUICE_TEST_PACKAGES"):
        return pathlib.Path(given)
    folder = tmp_path_factory.mktemp("packages")
    succeed("cpack", "-B", folder, cwd=BUILD)
    shutil.rmtree(folder / "_CPack_Packages")
    succeed(sys.executable, ROOT / "deploy" / "make_wheel.py", BUILD, folder)
    return folder


@pytest.fixture(scope="session")
def roots(tmp_path_factory):
    """Returns the folder of a release's root, which no test changes."""
    kept = os.environ.get("SLUICE_TEST_ROOTS")
    folder = pathlib.Path(kept) if kept else tmp_path_factory.mktemp("roots")

    def made(release):
        if not (folder / release).is_dir():
            succeed("debootstrap", "--variant=minbase", "--include=python3,python3-venv", release,
                    folder / f"{release}.new", MIRROR)
            (folder / f"{release}.new").rename(folder / release)
        return folder / release

    return made


class Root:
    """A copy of a root, which a test may change."""

    def __init__(self, path, release):
        self.path = path
        self.release = release

    def command(self, *words, user=None):
        as_user = []
        if user:
            as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        # The loader finds the libraries next to a program by /proc/self/exe.
        enter = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
        return ["unshare", "--mount", "sh", "-c", enter, str(self.path), *as_user,
                *map(str, words)]

    def run(self, *words, **options):
        return succeed(*self.command(*words, **options), env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root"})

    def has(self, program):
        return any((self.path / each / program).exists() for each in ("usr/bin", "venv/bin"))

    def files(self):
        """Returns all paths, without those that dpkg itself writes."""
        found = succeed("find", ".", "-mindepth", "1", cwd=self.path).splitlines()
        written = r"(var/(lib/dpkg|cache|log|tmp)|tmp|root|proc|sys|dev|packages)(/|$)|etc/.*-$"
        return {each for each in found if not re.match(rf"\./({written})", each)}


@contextlib.contextmanager
def timed(root, what):
    """Prints the time that a step took: `pytest -s` shows it, for docs/install.md."""
    began = time.monotonic()
    yield
    print(f"{root.release}: {time.monotonic() - began:6.2f} s  {what}")


@pytest.fixture(params=["bookworm", "trixie"])
def clean(request, roots, tmp_path, packages):
    made = Root(tmp_path / "root", request.param)
    succeed("cp", "-a", "--reflink=auto", roots(request.param), made.path)
    shutil.copytree(packages, made.path / "packages")
    assert not made.has("gcc") and not made.has("cc")
    yield made
    shutil.rmtree(made.path)


def daemon(root, *words, user=None):
    """Runs a daemon in a root, and yields its gRPC address."""
    return packaged.daemon(lambda *options: root.command(*words, *options, user=user))


def answer(root, grpc):
    return root.run("sluice", "generate", "In the beginning", "--model", "demo", "--max-tokens",
                    "8", "--server", grpc)


def newer(root):
    """Returns the path in the root of the same package with a higher version."""
    unpacked = root.path / "packages" / "newer"
    package, = (root.path / "packages").glob("*.deb")
    succeed("dpkg-deb", "--raw-extract", package, unpacked)
    control = unpacked / "DEBIAN" / "control"
    control.write_text(re.sub(r"^Version: .*$", "Version: 99", control.read_text(), flags=re.M))
    default = unpacked / CONFIGURATION
    default.write_text(default.read_text() + "# A later default.\n")
    sums = unpacked / "DEBIAN" / "md5sums"
    sums.unlink()
    succeed("dpkg-deb", "--build", "--root-owner-group", "-Zgzip", unpacked,
            root.path / "packages" / "newer.deb")
    shutil.rmtree(unpacked)
    return "/packages/newer.deb"


def test_the_debian_package_installs_serves_upgrades_and_leaves_no_trace(clean):
    before = clean.files()
    package, = (clean.path / "packages").glob("*.deb")
    with timed(clean, "dpkg --install"):
        clean.run("dpkg", "--install", f"/packages/{package.name}")
    assert "sluice:x:" in (clean.path / "etc" / "passwd").read_text()
    uid = clean.run("id", "-u", "sluice").strip()
    run = ("sluiced", "--config", f"/{CONFIGURATION}")
    with contextlib.ExitStack() as running:
        with timed(clean, "sluiced until the first answer, with the demo model"):
            grpc = running.enter_context(daemon(clean, *run, user=uid))
            first = answer(clean, grpc)
        assert first.strip()
    ladder = clean.path / LADDER
    assert ladder.is_file() and str(ladder.stat().st_uid) == uid

    operators = clean.path / CONFIGURATION
    operators.write_text(operators.read_text().replace("max_wait: 1s", "max_wait: 2s"))
    kept = operators.read_bytes(), ladder.read_bytes()
    later = newer(clean)
    with timed(clean, "dpkg --install of a later version"):
        clean.run("dpkg", "--install", "--force-confold", later)
    assert (operators.read_bytes(), ladder.read_bytes()) == kept
    assert "max_wait: 2s" in clean.run("sluiced", "--config", f"/{CONFIGURATION}",
                                       "--print-config")
    with daemon(clean, *run, user=uid) as grpc:
        assert answer(clean, grpc) == first

    clean.run("dpkg", "--remove", "sluice")
    assert operators.is_file() and ladder.is_file() and not clean.has("sluiced")
    with timed(clean, "dpkg --purge"):
        clean.run("dpkg", "--purge", "sluice")
    assert clean.files() == before
    assert "sluice" not in (clean.path / "etc" / "passwd").read_text()


def test_the_man_pages_list_every_option_and_every_command(packages, tmp_path):
    package, = packages.glob("*.deb")
    succeed("dpkg-deb", "-x", package, tmp_path)
    pages = {each.name: each.read_text() for each in tmp_path.glob("usr/share/man/man1/*")}
    assert sorted(pages) == ["sluice.1", "sluiced.1"]
    for path in tmp_path.glob("usr/share/man/man1/*"):
        warnings = subprocess.run(["man", "--warnings", "--local-file", path], text=True,
                                  capture_output=True, env=os.environ | {"MANPAGER": "cat"})
        assert warnings.returncode == 0 and not warnings.stderr, warnings.stderr
    defaults = succeed(BUILD / "server" / "sluiced", "--help-all")
    options = set(re.findall(r"^  --((?:engine|server|cpu|cuda)\.[\w.-]+)", defaults, re.M))
    assert len(options) > 50
    for option in options:
        name = option.replace("-", "_").replace("\\", "\\e")
        assert rf"\fB{name}\fR" in pages["sluiced.1"], option
    for command in ("infer", "generate", "doctor", "ladder"):
        assert f".SS {command}\n" in pages["sluice.1"]


def test_the_wheel_names_its_c_library_and_the_licences_of_its_libraries(packages):
    wheel, = packages.glob("sluice_server-*.whl")
    floor = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_(x86_64|aarch64)\.whl$", wheel.name)
    assert (int(floor[1]), int(floor[2])) <= (2, 36), "Debian 12 has 2.36"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        texts = [archive.read(each) for each in names if each.endswith("copyright")]
        modes = {each.filename: each.external_attr >> 16 & 0o777 for each in archive.infolist()}
    scripts = [each for each in names if "/scripts/" in each]
    assert sorted(each.rsplit("/")[-1] for each in scripts) == [
        "sluice", "sluice-analysis", "sluiced"]
    assert all(modes[each] == 0o755 for each in scripts)
    libraries = [each.rsplit("/")[-1] for each in names if "/lib/sluice/" in each]
    assert any(each.startswith("libgrpc++.so") for each in libraries)
    assert not any(re.match(r"lib(c|m)\.so|ld-linux", each) for each in libraries)
    licences = {each.rsplit("/")[-1] for each in names if "/licenses/" in each}
    assert "copyright" in licences, "Sluice's own licence"
    for library in libraries:
        found = subprocess.run(["dpkg", "--search", f"*/{library}"], capture_output=True,
                               text=True).stdout
        owners = {f"{line.split(':')[0]}.copyright" for line in found.splitlines()}
        assert owners & licences, library
    assert named_licences(text.decode() for text in texts) <= licences
    client, = packages.glob("sluice_client-*.whl")
    with zipfile.ZipFile(client) as archive:
        assert any(each.endswith("LICENSE") for each in archive.namelist())


def later_wheel(wheel):
    """Writes the same wheel with a higher version next to it, and returns the version."""
    name = "sluice_server-"
    version = wheel.name.removeprefix(name).split("-")[0]
    path = wheel.with_name(wheel.name.replace(name + version, f"{name}99"))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(path, "w") as new:
        for each in old.infolist():
            data = old.read(each)
            if each.filename.endswith(("METADATA", "RECORD")):
                data = data.replace(f"Version: {version}".encode(), b"Version: 99").replace(
                    (name + version).encode(), f"{name}99".encode())
            if each.filename.endswith("RECORD"):
                data = re.sub(rb"(METADATA),[^,]*,\d*", rb"\1,,", data)
            each.filename = each.filename.replace(name + version, f"{name}99")
            new.writestr(each, data)
    return "99"


def test_the_wheel_installs_serves_and_leaves_no_trace(clean, tmp_path):
    version = clean.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    server, = (clean.path / "packages").glob("sluice_server-*.whl")
    floor = re.search(r"manylinux_\d+_\d+_\w+", server.name)[0]
    client, = (clean.path / "packages").glob("sluice_client-*.whl")
    succeed(sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "--platform",
            floor, "--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64",
            "--python-version", version.strip(), "-d", clean.path / "packages",
            f"{client}[gateway]")
    clean.run("python3", "-m", "venv", "/venv")
    pip = ("/venv/bin/pip", "-q", "--disable-pip-version-check")
    install = ("install", "--no-index", "--no-compile", "--find-links", "/packages")
    clean.run(*pip, *install, "sluice-client[gateway]")
    installed = clean.files()
    with timed(clean, "pip install sluice-server"):
        clean.run(*pip, *install, "sluice-server")
    with contextlib.ExitStack() as running:
        with timed(clean, "sluice serve until the first answer of the gateway"):
            grpc, http = running.enter_context(serve(clean))
            assert answer_of(http)
        assert clean.run("/venv/bin/sluice", "health", "--server", grpc).strip() == "SERVING"
    ladder, = (clean.path / "state").glob("ladder-*")
    kept = ladder.read_bytes()
    later = later_wheel(server)
    with timed(clean, "pip install --upgrade sluice-server"):
        clean.run(*pip, *install, "--upgrade", "sluice-server")
    assert f"Version: {later}\n" in clean.run("/venv/bin/pip", "show", "sluice-server")
    assert ladder.read_bytes() == kept
    with serve(clean) as (_, http):
        assert answer_of(http)
    assert clean.has("sluiced")
    with timed(clean, "pip uninstall sluice-server"):
        clean.run(*pip, "uninstall", "-y", "sluice-server")
    # pip leaves the empty folders above a wheel's data.
    remaining = {each for each in clean.files() if each.startswith("./venv")
                 and "__pycache__" not in each and not (clean.path / each).is_dir()}
    assert remaining <= installed, remaining - installed


@contextlib.contextmanager
def serve(root):
    """Runs `sluice serve` in a root as an ordinary user, and yields both addresses."""
    ports = [str(free_port()) for _ in range(4)]
    state = root.path / "state"
    state.mkdir(exist_ok=True)
    os.chown(state, 1000, 1000)
    words = [word for pair in zip(("--grpc-port", "--http-port", "--metrics-port", "--admin-port"),
                                  ports) for word in pair]
    process = subprocess.Popen(
        root.command("/venv/bin/sluice", "serve", "--state", "/state", *words, user=1000),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        grpc = process.stdout.readline().split()
        assert grpc, process.communicate()[1]
        yield grpc[1], process.stdout.readline().split()[1]
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors


def answer_of(http):
    done = succeed("curl", "--silent", "--fail", f"{http}/v1/completions", "--json",
                   '{"model": "demo", "prompt": "In the beginning", "max_tokens": 8}')
    return '"text"' in done
