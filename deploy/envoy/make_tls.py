#!/usr/bin/env python3
"""Writes tls/envoy.yaml: envoy.yaml with a certificate at the listener of callers.

Run it after a change of envoy.yaml; a test compares the two."""

import pathlib

HERE = pathlib.Path(__file__).parent
TLS = HERE / "tls" / "envoy.yaml"

_PLAIN = "      filter_chains:\n        - filters:\n"
_CONTEXT = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
# Envoy watches the directory, so that it sees a renewed Secret.
_WITH_TLS = f"""\
      filter_chains:
        - transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/{_CONTEXT}
              common_tls_context:
                alpn_protocols: [h2]
                tls_params: {{tls_minimum_protocol_version: TLSv1_2}}
                tls_certificates:
                  - certificate_chain: {{filename: /etc/envoy-tls/tls.crt}}
                    private_key: {{filename: /etc/envoy-tls/tls.key}}
                    watched_directory: {{path: /etc/envoy-tls}}
          filters:
"""


def with_tls(plain):
    """Returns the text of envoy.yaml, `plain`, with TLS at its first listener."""
    assert _PLAIN in plain
    made_by = "# Written by make_tls.py from envoy.yaml.\n#\n"
    return made_by + plain.replace(_PLAIN, _WITH_TLS, 1)


if __name__ == "__main__":
    TLS.write_text(with_tls((HERE / "envoy.yaml").read_text()))
