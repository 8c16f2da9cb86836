"""Certificates of a cluster as its hosts have them: what is in each file, and how long it is valid."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, Status

WARN_DAYS: Final = 30
"""Days before its end at which a certificate is to be renewed, unless the caller says otherwise."""
_STEP: Final = "certificates"
_DAY: Final = 86400


class Validity(StrEnum):
    """How a certificate stands, the worst first."""

    EXPIRED = "expired"
    UNREADABLE = "unreadable"
    SOON = "expires soon"
    VALID = "valid"


class CertificateRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A certificate in a file of a host."""

    host: str
    path: str
    validity: Validity
    subject: str = ""
    issuer: str = ""
    ca: bool = False
    not_after: str = ""
    days_left: int = 0


class HostRow(Struct, frozen=True, kw_only=True):
    """A host that could not be looked at."""

    host: str
    message: str
    hint: str = ""


class Certificates(Struct, frozen=True, kw_only=True, rename="camel"):
    """The certificates of all hosts, in the order of the document."""

    threshold: int
    """Days."""
    hosts: list[str]
    certificates: list[CertificateRow]
    unseen: list[HostRow]
    cancelled: bool = False

    @property
    def due(self) -> list[CertificateRow]:
        """Those that are expired, cannot be read, or have fewer days left than the threshold."""
        return [each for each in self.certificates if each.validity is not Validity.VALID]


def certificates_in(
    result: GraphExecutionResult, hosts: Sequence[str], threshold: int, now: datetime | None = None
) -> Certificates:
    """The certificates in the result of the module's run."""
    at = now or datetime.now(UTC)
    rows: list[CertificateRow] = []
    unseen: list[HostRow] = []
    of_hosts = results_of(result, _STEP)
    for host in hosts:
        found = of_hosts.get(host)
        if found is None or found.status is not Status.SUCCESS:
            unseen.append(unseen_host(host, found))
        else:
            rows += [_row(host, path, data, threshold, at) for path, data in _lines(found)]
    return Certificates(
        threshold=threshold,
        hosts=list(hosts),
        certificates=rows,
        unseen=unseen,
        cancelled=result.status is Status.CANCELLED,
    )


def results_of(result: GraphExecutionResult, step: str) -> dict[str, HostResult]:
    """By host what a step of a module that looks has said; nothing of hosts that it was not for."""
    for name, node in result.node_results.items():
        if name.rpartition("/")[2] == step:
            return {
                host: each
                for host, each in node.host_results.items()
                if each.status is not Status.SKIPPED or each.cause
            }
    return {}


def unseen_host(host: str, found: HostResult | None) -> HostRow:
    """Why a host could not be looked at."""
    if found is None:
        return HostRow(host=host, message="it was not looked at")
    hint = found.hint
    if found.kind is FailureKind.UNREACHABLE:
        hint = hint or "see that the host is on, and check its address, port, user and key"
    return HostRow(host=host, message=found.stderr.strip() or found.message, hint=hint)


def _lines(result: HostResult) -> Iterator[tuple[str, str]]:
    for line in result.stdout.splitlines():
        path, tab, data = line.partition("\t")
        if tab:
            yield path, data


def _row(host: str, path: str, data: str, threshold: int, now: datetime) -> CertificateRow:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def name(of: x509.Name) -> str:
        common = of.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(common[0].value) if common else of.rfc4514_string()

    try:
        found = x509.load_pem_x509_certificate(base64.b64decode(data, validate=True))
        end = found.not_valid_after_utc
        try:
            ca = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            ca = False
        days = int((end - now).total_seconds() // _DAY)
        validity = Validity.EXPIRED if end <= now else Validity.SOON if days < threshold else Validity.VALID
        return CertificateRow(
            host=host,
            path=path,
            validity=validity,
            subject=name(found.subject),
            issuer=name(found.issuer),
            ca=ca,
            not_after=end.strftime("%Y-%m-%dT%H:%M:%SZ"),
            days_left=days,
        )
    except (ValueError, binascii.Error):
        return CertificateRow(host=host, path=path, validity=Validity.UNREADABLE)
