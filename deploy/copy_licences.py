#!/usr/bin/env python3
"""Copies the licences of an installed tree's programs and libraries into its share/doc/sluice.

  deploy/copy_licences.py PREFIX

The libraries in PREFIX/lib/sluice come from Debian packages of this machine; each package's
licences are in its file `copyright`, which may refer to a text in Debian's folder of common
licences. The header-only libraries are part of the programs. In the tree of an image, the folders
of PREFIX/share/doc already have the files of the libraries.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMON = pathlib.Path("/usr/share/common-licenses")
# Packages whose headers are compiled into the programs.
HEADERS = ["libcli11-dev", "nlohmann-json3-dev", "libspdlog-dev", "libabsl-dev"]


def package_of(library):
    """Returns the package that has a library of this name in a folder of the loader."""
    found = subprocess.run(["dpkg", "--search", f"*/{library}"], capture_output=True, text=True)
    folders = ("/lib/", "/usr/lib/x86_64", "/usr/lib/aarch64")
    packages = {line.split(":")[0] for line in found.stdout.splitlines()
                if line.partition(": ")[2].startswith(folders)}
    if len(packages) != 1:
        sys.exit(f"copy_licences.py: {library} belongs to {len(packages)} packages: "
                 f"{sorted(packages)}; expected one. Install it from a package of Debian.")
    return packages.pop()


def copy(source, target):
    target.write_bytes(source.read_bytes())  # shutil is not in Debian's python3-minimal.


def main():
    prefix = pathlib.Path(sys.argv[1])
    documents = prefix / "share" / "doc" / "sluice"
    documents.mkdir(parents=True, exist_ok=True)
    copy(ROOT / "LICENSE", documents / "copyright")
    libraries = {each.name for each in (prefix / "lib" / "sluice").glob("*")
                 if not each.is_symlink()}
    for package in sorted({*map(package_of, libraries), *HEADERS}):
        copy(pathlib.Path("/usr/share/doc", package, "copyright"),
             documents / f"{package}.copyright")
    texts = [each.read_text() for each in (prefix / "share" / "doc").rglob("*copyright")]
    for name in sorted(set(re.findall(rf"{COMMON}/([\w.-]*\w)", "".join(texts)))):
        copy(COMMON / name, documents / name)


if __name__ == "__main__":
    main()
