#!/usr/bin/env python3
"""Copies the licences of an installed tree's programs and libraries into its share/doc/sluice.

  deploy/copy_licences.py PREFIX

The libraries in PREFIX/lib/sluice come from Debian packages of this machine; each package's
licences are in its file `copyright`. The header-only libraries are part of the programs.
"""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
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


def main():
    prefix = pathlib.Path(sys.argv[1])
    documents = prefix / "share" / "doc" / "sluice"
    documents.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "LICENSE", documents / "copyright")
    libraries = sorted(each for each in (prefix / "lib" / "sluice").iterdir()
                       if not each.is_symlink())
    for package in sorted({*map(package_of, (each.name for each in libraries)), *HEADERS}):
        shutil.copyfile(f"/usr/share/doc/{package}/copyright", documents / f"{package}.copyright")


if __name__ == "__main__":
    main()
