"""The identity that a connection proves by itself, before its client has said anything."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tarry.api.certificate_names import COMMON_NAME, DNS, URI

_CREDENTIALS = struct.Struct("3i")
"""Linux's ``struct ucred``: process, user and group."""


@dataclass(frozen=True, slots=True)
class PeerProof:
    """The identity that a connection proved. Two of other kinds are never the same."""

    kind: Literal["certificate", "user"]
    """The proof: a client's certificate, which an authority of ours has signed; or a Unix socket."""
    name: str
    """The certificate's subject, as ``"commonName=alice"``; or the number of the user."""
    alternatives: tuple[str, ...] = ()
    """Further names in a certificate, as ``"DNS:alice.example"`` and ``"URI:spiffe://example/alice"``."""
    names: tuple[str, ...] = ()
    """Names in a certificate by which an identity may be known: see :mod:`tarry.api.certificate_names`."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def certificate_of(proof: object) -> tuple[str, ...] | None:
    """Return the names of the client's certificate that a connection's proof is of; None: it is of none."""
    return proof.names if isinstance(proof, PeerProof) and proof.kind == "certificate" else None


def proof_of(transport: asyncio.BaseTransport) -> PeerProof | None:
    """Return the identity that a connection has proved; None if it has proved none."""
    certificate = transport.get_extra_info("peercert")
    if certificate:
        return of_certificate(certificate)
    connection = transport.get_extra_info("socket")
    return None if connection is None else of_socket(connection)


def of_certificate(certificate: Mapping[str, Any]) -> PeerProof:
    """Return the owner of a certificate that was verified, as ``ssl`` gives it."""
    subject = [f"{name}={value}" for part in certificate.get("subject", ()) for name, value in part]
    others = tuple(f"{kind}:{value}" for kind, value in certificate.get("subjectAltName", ()))
    return PeerProof("certificate", ",".join(subject), others, _names_of(certificate))


def _names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    alternatives = certificate.get("subjectAltName", ())
    if not alternatives:
        parts = (part for each in certificate.get("subject", ()) for part in each)
        return tuple(COMMON_NAME + value for kind, value in parts if kind == "commonName")
    uris = (URI + value for kind, value in alternatives if kind == "URI")
    return (*uris, *(DNS + value.lower() for kind, value in alternatives if kind == "DNS"))


def of_socket(connection: socket.socket) -> PeerProof | None:
    """Return the user at the other end of a Unix socket; None for TCP, and where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or connection.family != socket.AF_UNIX:
        return None
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return PeerProof("user", str(user))
