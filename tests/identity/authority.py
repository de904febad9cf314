"""An authority of clients' certificates, and certificates that it has signed."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.loopgrpc.certificates import Certificate

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class ClientCertificate(Certificate):
    """A client's certificate, and the broker's, which it trusts."""

    ca: Path

    def context(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.certificate, self.key)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context


class Authority:
    """Signs certificates of clients, who trust the broker's certificate at ``ca``."""

    def __init__(self, directory: Path, ca: Path) -> None:
        directory.mkdir()
        self._directory, self._ca = directory, ca
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        own = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        self.file = directory / "authority.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        self._made = 0

    def sign(
        self, *names: x509.GeneralName, common_name: str = "client", days: int = 1, for_servers: bool = False
    ) -> ClientCertificate:
        """A certificate with these alternative names; without, the common name is all that it has."""
        self._made += 1
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = self._builder(subject, key, days)
        use = ExtendedKeyUsageOID.SERVER_AUTH if for_servers else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        made = self._directory / f"{self._made}.pem", self._directory / f"{self._made}.key"
        made[0].write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        made[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return ClientCertificate(*made, self._ca)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + days * DAY)
        )


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


def dns(text: str) -> x509.GeneralName:
    return x509.DNSName(text)
