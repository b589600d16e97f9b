#!/usr/bin/env python3
"""Writes sidecar/envoy.yaml: envoy.yaml with TLS, before the one daemon of its own pod.

Run it after a change of envoy.yaml; a test compares the two."""

import pathlib
import re

from make_tls import HERE, with_tls

SIDECAR = HERE / "sidecar" / "envoy.yaml"

_LISTENER = "socket_address: {address: 0.0.0.0, port_value: 8001}"
_ENDPOINT = "socket_address: {address: sluice-headless, port_value: 8001}"
_DISCOVERY = re.compile(r"      # The name has one address per ready replica.*?"
                        r"(?=      connect_timeout: 1s\n)", re.S)
_HOST = """                    - name: sluice
                      domains: ["*"]
"""
# The daemon believes this header from its own machine, and a caller could invent names to get more
# turns.
_FROM_CALLERS = """                      request_headers_to_remove: [sluice-client]
"""
# With one host, ejecting it refuses all calls.
_EJECTION = re.compile(r"      # Outlier detection finds.*?(?=      # The daemon's queue limits)",
                       re.S)


def replaced(text, old, new):
    assert text.count(old) == 1, old
    return text.replace(old, new)


def sidecar(plain):
    """Returns the text of envoy.yaml, `plain`, for a container in the daemon's pod."""
    text = with_tls(plain).replace("make_tls.py", "make_sidecar.py", 1)
    text = replaced(text, _LISTENER, _LISTENER.replace("8001", "8443"))
    text = replaced(text, _ENDPOINT, "socket_address: {address: 127.0.0.1, port_value: 8001}")
    text = replaced(text, _HOST, _HOST + _FROM_CALLERS)
    for pattern, new in ((_DISCOVERY, "      type: STATIC\n"), (_EJECTION, "")):
        text, count = pattern.subn(new, text)
        assert count == 1, pattern.pattern
    return text


if __name__ == "__main__":
    SIDECAR.parent.mkdir(exist_ok=True)
    SIDECAR.write_text(sidecar((pathlib.Path(HERE) / "envoy.yaml").read_text()))
