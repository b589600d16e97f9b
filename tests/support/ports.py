#!/usr/bin/env python3
"""Finds free ports for servers in tests.

usage: ports.py VARIABLE... -- COMMAND... runs COMMAND, each VARIABLE set to a free port.
"""

import functools
import itertools
import os
import socket
import subprocess
import sys

# The ranges of ports are below the kernel's range for outgoing connections. They are above the last
# port that Chromium refuses (ERR_UNSAFE_PORT), 10080.
FIRST, END, SIZE = 11000, 32000, 500


@functools.cache
def claimed():
    """Claims a range until this process ends. Returns the socket that holds the claim, and the
    ports. The socket listens on the range's first port, so no other process can claim the range.
    """
    for first in range(FIRST, END, SIZE):
        try:
            claim = socket.create_server(("127.0.0.1", first))
        except OSError:
            continue
        return claim, itertools.cycle(range(first + 1, first + SIZE))
    raise RuntimeError(f"other processes have claimed all ports from {FIRST} to {END}")


def free_port():
    """Returns a free loopback port, a different one each time.

    Only this process uses the range, so no other test takes the port before its server starts."""
    for port in itertools.islice(claimed()[1], SIZE):
        with socket.socket() as probe:
            # gRPC and the daemon set this option too, so a port in TIME_WAIT counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no port is free")


def main():
    separator = sys.argv.index("--")
    ports = {name: str(free_port()) for name in sys.argv[1:separator]}
    sys.exit(subprocess.run(sys.argv[separator + 1:], env={**os.environ, **ports}).returncode)


if __name__ == "__main__":
    main()
