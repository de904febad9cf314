"""The settings of TLS that all ports share, and the TLS of one port by them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from tarry.api.clear_ports import ClearPort
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.base.setting_types import Allowed, Optional, checked
from tarry.fronts.kit.settings import FrontSettings
from tarry.fronts.kit.tls import OnClear, OnReload, ReloadedTls, TlsFiles

if TYPE_CHECKING:  # settings are loaded before Arrow, whose environment is set first
    from tarry.api.local import AnyBroker

TLS_LISTENERS = ("http", "link", "metrics", "mqtt", "gateway")
"""Ports that take TLS by the shared settings alone."""


def parse_tls_listeners(text: str) -> frozenset[str]:
    """Parse the ports that a setting names, as in "http metrics"; "" is none.

    Raises:
        InvalidArgumentError: there is no such port, or it has a setting of its own.
    """
    names = frozenset(text.replace(",", " ").split())
    for name in sorted(names.difference(TLS_LISTENERS)):
        raise InvalidArgumentError(f"listener {name!r}; allowed: {', '.join(TLS_LISTENERS)}")
    return names


TlsListeners = Annotated[
    str, AfterValidator(checked(parse_tls_listeners)), Allowed('"http metrics" or so, "" for none')
]


class TlsSettings(FrontSettings):
    """TLS of all ports; part of the broker's configuration."""

    tls: Literal["on", "both", "off"] = Field(
        "on", description="With a certificate, clients come by TLS, as they like (both), or in the clear."
    )
    tls_certificate: Optional = Field(
        None, description="PEM file of the certificate chain of every port; empty: no TLS, but for RocketMQ's."
    )
    tls_key: Optional = Field(None, description="PEM file of the certificate's private key.")
    tls_client_ca: Optional = Field(
        None, description="PEM file of authorities, one of which must have signed each client's certificate (mTLS)."
    )
    tls_version_min: Literal["1.2", "1.3"] = Field("1.2", description="Oldest version of TLS that clients may use.")
    tls_except: TlsListeners = Field(
        "", description="Ports that are in the clear all the same, as behind a proxy of this machine."
    )
    tls_clients: Literal["required", "optional"] = Field(
        "required", description="With tls_client_ca, each client shows a certificate, or only those that have one."
    )


@dataclass(frozen=True, slots=True)
class PortTls:
    """TLS of one port."""

    files: TlsFiles | None = None
    """None: clients connect without TLS."""
    plain: bool = False
    """True if clients may connect without TLS, too."""
    on_reload: OnReload | None = field(default=None, compare=False)
    """Is told of files that were read again."""
    on_clear: OnClear | None = field(default=None, compare=False)
    """Is told of an address at which other machines may speak without TLS."""

    def noted(self, broker: AnyBroker, listener: str) -> PortTls:
        """Return the same, whose new files and addresses without TLS the broker notes as a listener's."""
        return replace(
            self,
            on_reload=lambda files: broker.refusals.reloaded(listener, files),
            on_clear=lambda address: broker.clear_ports.note(ClearPort(listener, address)),
        )

    def context(self, alpn: tuple[str, ...] = ()) -> ReloadedTls | None:
        """Read the files; None without TLS. ``alpn`` names the protocols that clients may choose.

        Raises:
            InvalidArgumentError: the files are not a certificate and its key, or not authorities.
        """
        return None if self.files is None else ReloadedTls(self.files, alpn, on_reload=self.on_reload)


def shared_files(config: Config) -> TlsFiles | None:
    """Return the certificate of all ports; None if there is none.

    Raises:
        InvalidArgumentError: a certificate or its key is missing.
    """
    settings = TlsSettings.of(config)
    pair = both_or_neither("tls", settings.tls_certificate, settings.tls_key)
    if settings.tls_client_ca is not None and pair is None:
        raise InvalidArgumentError(
            f"tls_client_ca is {settings.tls_client_ca!r} and there is no tls_certificate; allowed: both, or neither"
        )
    if pair is None:
        return None
    return TlsFiles(
        *pair,
        settings.tls_client_ca,
        is_client_optional=settings.tls_clients == "optional",
        version_min=settings.tls_version_min,
    )


def with_certificate(shared: TlsFiles | None, certificate: str, key: str) -> TlsFiles:
    """Return a port's own certificate, with what all ports ask of clients."""
    return TlsFiles(certificate, key) if shared is None else replace(shared, certificate=certificate, key=key)


def port_tls(config: Config, listener: str) -> PortTls:
    """Return the TLS of a port, one of :data:`TLS_LISTENERS`, that has no settings of its own for it.

    Raises:
        InvalidArgumentError: see :func:`shared_files` and :func:`with_mode`.
    """
    settings = TlsSettings.of(config)
    mode = "off" if listener in parse_tls_listeners(settings.tls_except) else settings.tls
    return with_mode("tls", mode, shared_files(config))


def with_mode(name: str, mode: str, files: TlsFiles | None) -> PortTls:
    """Return the TLS of a port by the setting ``name``, which has the value "on", "both" or "off".

    Raises:
        InvalidArgumentError: clients must show certificates, and some need no TLS.
    """
    if files is None or mode == "off":
        return PortTls()
    if mode == "both" and files.client_ca is not None and not files.is_client_optional:
        raise InvalidArgumentError(
            f"{name} is 'both' and tls_client_ca is {files.client_ca!r}: who came without TLS would need no "
            "certificate; allowed: on, tls_clients=optional, or no tls_client_ca"
        )
    return PortTls(files, plain=mode == "both")


def both_or_neither(prefix: str, certificate: str | None, key: str | None) -> tuple[str, str] | None:
    """Return the files of the settings ``PREFIX_certificate`` and ``PREFIX_key``; None without them.

    Raises:
        InvalidArgumentError: only one of the two is given.
    """
    if certificate is not None and key is not None:
        return certificate, key
    if certificate is None and key is None:
        return None
    raise InvalidArgumentError(
        f"{prefix}_certificate is {certificate!r}, {prefix}_key {key!r}; allowed: both or neither"
    )


def check(config: Config) -> None:
    """Raise an error if TLS by the settings of all ports is not what it should be.

    Raises:
        InvalidArgumentError: it is not.
    """
    with_mode("tls", TlsSettings.of(config).tls, shared_files(config)).context()
