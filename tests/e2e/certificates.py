"""Starts daemons with TLS certificates and manages the certificate files."""

import grpc
import tritonclient.grpc as grpcclient
from conftest import Daemon


class SecureDaemon(Daemon):
    """A daemon whose clients use TLS, trust `ca` and present `own`, an Authority.pair()."""

    def __init__(self, ca, *options, **named):
        self.ca, self.own = ca, (None, None)
        super().__init__(*options, **named)

    def client(self, **options):
        credentials = grpc.ssl_channel_credentials(self.ca, self.own[1], self.own[0])
        return grpcclient.InferenceServerClient(self.grpc, ssl=True, creds=credentials, **options)


class Files:
    """The files with a daemon's certificate, key and certificate authority."""

    def __init__(self, folder, authority):
        self.crt, self.key, self.ca = (folder / name for name in ("tls.crt", "tls.key", "ca.crt"))
        self.ca.write_bytes(authority.certificate)
        self.put(authority.pair())

    def put(self, pair):
        self.crt.write_bytes(pair[0])
        self.key.write_bytes(pair[1])

    def options(self):
        return [
            "--server.tls.certificate-file",
            str(self.crt),
            "--server.tls.key-file",
            str(self.key),
            "--server.secrets.poll-interval",
            "100ms",
        ]
