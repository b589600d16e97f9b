"""Finds ports for the servers of tests."""

import socket


def first_free(ports):
    """Returns the first loopback port of `ports` that is free.

    The ports are below the kernel's range for outgoing connections and are given to one test
    process alone, so that no other takes the port before its server starts."""
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
