"""A certificate authority for TLS tests."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption())


class Authority:
    """A certificate authority that signs certificates for localhost."""

    def __init__(self, days=1):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self.certificate = pem(self._sign(self._name, self._key, days, authority=True))

    def _sign(self, subject, key, days, authority=False, names=("localhost",)):
        now = datetime.datetime.now(datetime.timezone.utc)
        alternatives = [*map(x509.DNSName, dict.fromkeys(names)),
                        x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (x509.CertificateBuilder()
                .subject_name(subject).issuer_name(self._name).public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - datetime.timedelta(days=9))
                .not_valid_after(now + datetime.timedelta(days=days))
                .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
                .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
                .sign(self._key, hashes.SHA256()))

    def pair(self, days=1, name="localhost", alternative=None):
        """Returns a certificate that expires in `days` days and its key, both as PEM.

        `name` is its common name. Its alternative names are localhost and `alternative`, which is
        `name` by default.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = ("localhost", alternative or name)
        return pem(self._sign(subject, key, days, names=names)), key_pem(key)
