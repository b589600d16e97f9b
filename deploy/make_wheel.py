#!/usr/bin/env python3
"""Makes the wheels sluice_server and sluice_client from a build.

  deploy/make_wheel.py build/release FOLDER

sluice_server has the three programs, their shared libraries and the demo model, in the folders
bin, lib/sluice and share/sluice of the environment that it is installed into. It has no Python
code: it depends on sluice-client, whose program sluice-serve starts daemon and gateway. The tag
names the oldest C library that the programs and libraries run with.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The field e_machine of ELF, and the name that tags of wheels use.
MACHINES = {62: "x86_64", 183: "aarch64"}
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))  # 1980, the first year of ZIP
METADATA = """\
Metadata-Version: 2.1
Name: sluice-server
Version: {version}
Summary: The Sluice inference daemon and its client for the command line
License: Apache-2.0
Requires-Python: >=3.10.7
Requires-Dist: sluice-client[gateway]=={version}
"""


def glibc_floor(files):
    """Returns (major, minor) of the newest version of the C library that the files name."""
    newest = (2, 17)  # the oldest version with a manylinux tag
    for file in files:
        text = subprocess.run(["readelf", "--version-info", "--wide", file], check=True,
                              capture_output=True, text=True).stdout
        found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", text)
        newest = max([newest, *((int(major), int(minor)) for major, minor in found)])
    return newest


def machine_of(program):
    return MACHINES[int.from_bytes(program.read_bytes()[18:20], "little")]


def stage(build, folder):
    """Installs the component `programs` into `folder`, stripped."""
    done = subprocess.run(["cmake", "--install", build, "--component", "programs", "--strip",
                           "--prefix", folder], capture_output=True, text=True)
    if done.returncode != 0:  # Otherwise stderr may name libraries in the root of a cross compiler.
        sys.exit(done.stderr)


def name_libraries(folder):
    """Replaces links by their files, because a wheel has no links: one file for each name that a
    program or library loads."""
    files = {link: link.resolve() for link in folder.iterdir() if link.is_symlink()}
    for link in files:
        link.unlink()
    for file in set(files.values()):
        links = [link for link, target in files.items() if target == file]
        for link in links:
            shutil.copy2(file, link)
        file.unlink()
    for file in folder.iterdir():
        file.chmod(0o644)


class Wheel:
    """A wheel that is being written, in a fixed order and with fixed times."""

    def __init__(self, path):
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self._record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, time.gmtime(max(EPOCH, 315532800))[:6])
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._archive.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, record):
        self.add(record, "\n".join([*self._record, f"{record},,", ""]).encode())
        self._archive.close()


def write(tree, folder, version):
    """Writes the wheel of a staged tree, and returns its path."""
    programs = sorted((tree / "bin").iterdir())
    libraries = sorted((tree / "lib" / "sluice").iterdir())
    major, minor = glibc_floor([*programs, *libraries])
    tag = f"py3-none-manylinux_{major}_{minor}_{machine_of(programs[0])}"
    path = folder / f"sluice_server-{version}-{tag}.whl"
    data, info = f"sluice_server-{version}.data", f"sluice_server-{version}.dist-info"
    wheel = Wheel(path)
    for file in programs:
        wheel.add(f"{data}/scripts/{file.name}", file.read_bytes(), 0o755)
    shared = [*libraries, *sorted((tree / "share" / "sluice").rglob("*"))]
    for file in (each for each in shared if each.is_file()):
        wheel.add(f"{data}/data/{file.relative_to(tree)}", file.read_bytes())
    for file in sorted((tree / "share" / "doc" / "sluice").iterdir()):
        wheel.add(f"{info}/licenses/{file.name}", file.read_bytes())
    wheel.add(f"{info}/METADATA", METADATA.format(version=version).encode())
    wheel.add(f"{info}/WHEEL", ("Wheel-Version: 1.0\nGenerator: deploy/make_wheel.py\n"
                                f"Root-Is-Purelib: false\nTag: {tag}\n").encode())
    wheel.close(f"{info}/RECORD")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, help="the folder of a build")
    parser.add_argument("folder", type=pathlib.Path, help="the folder to write")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    version = re.search(r"project\(sluice VERSION (\S+)",
                        (ROOT / "CMakeLists.txt").read_text())[1]
    with tempfile.TemporaryDirectory() as temporary:
        tree = pathlib.Path(temporary) / "tree"
        stage(given.build, tree)
        name_libraries(tree / "lib" / "sluice")
        print(write(tree, given.folder, version))
        # Building writes files into the source folder.
        sources = pathlib.Path(temporary) / "python"
        shutil.copytree(ROOT / "clients" / "python", sources)
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w",
                        given.folder, sources], check=True)


if __name__ == "__main__":
    main()
