"""Finds free ports for servers in tests."""

import socket


def first_free(ports):
    """Returns the first free loopback port of `ports`.

    The ports are below the kernel's range for outgoing connections. Only one test process uses
    them, so no other process takes the port before its server starts."""
    for port in ports:
        with socket.socket() as probe:
            # gRPC and the daemon set this option too, so a port in TIME_WAIT counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no port is free")
