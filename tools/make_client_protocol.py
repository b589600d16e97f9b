#!/usr/bin/env python3
"""Writes the descriptor of the protocol that the Python client builds its messages from.

clients/python contains it as a module, so that installing the client needs no compiler. With
--check nothing is written, and the exit status is 1 if the module does not match
proto/inference.proto.
"""

import argparse
import base64
import pathlib
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODULE = ROOT / "clients" / "python" / "sluice_client" / "_inference_descriptor.py"

TEXT = '''"""The descriptor of proto/inference.proto, as tools/make_client_protocol.py writes it."""

import base64

FILE = base64.b64decode(
{lines}
)
'''


def described():
    """Returns the text of the module."""
    # Only Protobuf's FileDescriptorSet is needed, so it is imported here.
    from google.protobuf import descriptor_pb2

    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "set"
        subprocess.run(
            ["protoc", f"--proto_path={ROOT / 'proto'}", f"--descriptor_set_out={out}",
             "inference.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    (file,) = files
    encoded = base64.b64encode(file.SerializeToString(deterministic=True)).decode()
    return TEXT.format(lines="\n".join(f'    "{line}"' for line in textwrap.wrap(encoded, 88)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    text = described()
    if not arguments.check:
        MODULE.write_text(text)
    elif MODULE.read_text() != text:
        sys.exit(f"{MODULE.relative_to(ROOT)} is out of date; run tools/make_client_protocol.py")


if __name__ == "__main__":
    main()
