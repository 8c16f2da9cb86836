"""Keys and certificates: made, read and compared in words with `cryptography`, which takes long to import."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

Certificate = x509.Certificate
PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

_BEFORE: Final = timedelta(minutes=5)
"""So long before it is made a certificate begins: clocks of hosts differ."""
_DAY: Final = 86400
_CURVES: Final[dict[str, ec.EllipticCurve]] = {
    "ecdsa-p256": ec.SECP256R1(), "ecdsa-p384": ec.SECP384R1(), "ecdsa-p521": ec.SECP521R1(),
}  # fmt: skip
_CURVE_NAMES: Final = {curve.name: name for name, curve in _CURVES.items()}
_USAGES: Final = {"serverAuth": ExtendedKeyUsageOID.SERVER_AUTH, "clientAuth": ExtendedKeyUsageOID.CLIENT_AUTH}
_USAGE_NAMES: Final = {oid: name for name, oid in _USAGES.items()}
_PARTS: Final = {
    "C": NameOID.COUNTRY_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "CN": NameOID.COMMON_NAME,
}  # fmt: skip
_PART_NAMES: Final = {oid: name for name, oid in _PARTS.items()}
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class Wanted(Struct, frozen=True):
    """A certificate as it should be."""

    ca: bool
    subject: tuple[tuple[str, str], ...]
    """Pairs such as ``("O", "system:masters")``."""
    sans: frozenset[str]
    """As ``san`` writes them."""
    usages: frozenset[str]
    algorithm: str
    path_length: int | None
    validity: float
    renew_before: float
    force: bool = False


class Issuer(Struct, frozen=True):
    """The CA that signs: its certificate, others behind it, and its key once that is needed."""

    certificate: Certificate
    chain: tuple[Certificate, ...]
    """All certificates of its file."""
    key: PrivateKey | None = None


# reading and writing


def read_certificates(data: bytes) -> list[Certificate]:
    """All certificates of a PEM text; ValueError if there is none, or if one is damaged."""
    blocks = [found[0] for found in _BLOCK.finditer(data) if found[1] in (b"CERTIFICATE", b"X509 CERTIFICATE")]
    if not blocks:
        raise ValueError("it contains no certificate in PEM format")
    try:
        return [x509.load_pem_x509_certificate(block.replace(b"X509 CERT", b"CERT")) for block in blocks]
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("it is not a certificate in PEM format, or it is damaged") from None


def read_key(data: bytes, passphrase: str | None = None) -> PrivateKey:
    """The private key of a PEM text; ValueError says what is wrong, and nothing of the key."""
    blocks = [found for found in _BLOCK.finditer(data) if found[1].endswith(b"PRIVATE KEY")]
    if not blocks:
        raise ValueError("it contains no private key in PEM format")
    try:
        key = serialization.load_pem_private_key(blocks[0][0] + b"\n", passphrase.encode() if passphrase else None)
    except TypeError:
        said = "it is encrypted" if passphrase is None else "it is not encrypted, but there is a passphrase for it"
        raise ValueError(said) from None
    except (ValueError, UnsupportedAlgorithm):
        said = "it is not a private key that can be used, or it is damaged"
        raise ValueError(said if passphrase is None else f"{said}, or its passphrase is another one") from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise ValueError("it is neither an RSA nor an ECDSA nor an Ed25519 key")
    return key


def certificate_pem(*certificates: Certificate) -> bytes:
    """Certificates as PEM."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def key_pem(key: PrivateKey) -> bytes:
    """A key as PEM (PKCS #8), not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def new_key(algorithm: str) -> PrivateKey:
    """A new key, such as ``rsa-2048``, ``ecdsa-p256`` or ``ed25519``."""
    if algorithm == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    return rsa.generate_private_key(65537, int(algorithm.removeprefix("rsa-")))


def algorithm_of(key: Any) -> str:
    """The name of a public key's algorithm."""
    match key:
        case rsa.RSAPublicKey():
            return f"rsa-{key.key_size}"
        case ec.EllipticCurvePublicKey():
            return _CURVE_NAMES.get(key.curve.name, f"ecdsa-{key.curve.name}")
        case ed25519.Ed25519PublicKey():
            return "ed25519"
    return type(key).__name__.lower()


def same_key(one: Any, other: Any) -> bool:
    """Whether two public keys are the same."""
    how = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return bool(one.public_bytes(*how) == other.public_bytes(*how))


def secret_texts(data: bytes, *, key: bool = True) -> Iterator[str]:
    """Of each private key in a file, what must never be shown: its private numbers in base64 and in hex.

    Not the whole text: the public numbers are in certificates too. Of a key that cannot be read, all of it; and if the
    file is for a ``key`` and is no PEM, each line.
    """
    blocks = [found for found in _BLOCK.finditer(data) if found[1].endswith(b"PRIVATE KEY")]
    for found in blocks:
        # Old keys have headers.
        lines = "".join(line for line in found[2].decode("latin-1").splitlines(keepends=True) if ":" not in line)
        places = [at for at, char in enumerate(lines) if not char.isspace()]
        body = "".join(lines.split())
        try:
            der, secret = base64.b64decode(body), _private(read_key(found[0]))
            start = der.index(secret)
        except ValueError:
            yield body
            continue
        # The public numbers of RSA come first, those of elliptic curves last.
        stop = len(der) if len(secret) > 100 else start + len(secret)
        first, last = start // 3 * 4, min(len(body), -(-stop // 3) * 4)
        # As it is in the file too: an encoding of the file, as in a kubeconfig, is one of these lines.
        yield from (body[first:last], lines[places[first] : places[last - 1] + 1], secret.hex(), secret.hex(":"))
    if key and not blocks:
        yield from (line for line in data.decode("latin-1").splitlines() if len(line) >= 16)


def _private(key: PrivateKey) -> bytes:
    match key:
        case rsa.RSAPrivateKey():
            number = key.private_numbers().d
            return number.to_bytes((number.bit_length() + 7) // 8, "big")
        case ec.EllipticCurvePrivateKey():
            return key.private_numbers().private_value.to_bytes((key.curve.key_size + 7) // 8, "big")
        case _:
            return key.private_bytes_raw()


# words


def san(kind: str, value: str) -> str:
    """A name of a certificate in one way of writing: ``example.org``, ``10.0.0.1``, ``spiffe://...``."""
    if kind == "ip":
        return str(ipaddress.ip_address(value))
    return value.lower() if kind == "dns" else value


def sans_of(certificate: Certificate) -> frozenset[str]:
    """All names of a certificate; of kinds that no step makes, as the library writes them."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    found = set[str]()
    for name in names:
        match name:
            case x509.DNSName():
                found.add(san("dns", name.value))
            case x509.IPAddress() | x509.UniformResourceIdentifier():
                found.add(str(name.value))
            case _:
                found.add(str(name))
    return frozenset(found)


def subject_of(name: x509.Name) -> tuple[tuple[str, str], ...]:
    """A name as pairs, sorted: their order means nothing."""
    return tuple(sorted((_PART_NAMES.get(part.oid, part.oid.dotted_string), str(part.value)) for part in name))


def subject_text(pairs: Sequence[tuple[str, str]]) -> str:
    """A name for people."""
    return ", ".join(f"{key}={value}" for key, value in pairs) or "no subject"


def day(moment: datetime) -> str:
    """A date for people."""
    return moment.strftime("%Y-%m-%d")


def days_left(certificate: Certificate, now: datetime) -> int:
    """Days until it expires, the one that has begun among them; negative afterwards."""
    return -int((now - certificate.not_valid_after_utc).total_seconds() // _DAY)


def faults(found: Certificate, wanted: Wanted, issuer: Issuer | None, now: datetime) -> list[str]:
    """Why a certificate must be issued anew, each in few words; nothing if it is as it should be."""
    words = ["it is issued anew (force)"] if wanted.force else []
    subject = subject_of(found.subject)
    if subject != tuple(sorted(wanted.subject)):
        words.append(f"subject {subject_text(subject)} -> {subject_text(wanted.subject)}")
    if names := _changed(sans_of(found), wanted.sans):
        words.append(f"SAN {names}")
    if _is_ca(found) != wanted.ca:
        words.append("it is not a CA" if wanted.ca else "it is a CA")
    elif wanted.ca and _path_length(found) != wanted.path_length:
        words.append(f"path length {_path_length(found)} -> {wanted.path_length}")
    if not wanted.ca and (usages := _changed(_usages(found), wanted.usages)):
        words.append(f"usage {usages}")
    algorithm = algorithm_of(found.public_key())
    if algorithm != wanted.algorithm:
        words.append(f"key {algorithm} -> {wanted.algorithm}")
    if not _issued_by(found, issuer.certificate if issuer else found):
        by = subject_text(subject_of(issuer.certificate.subject)) if issuer else "itself"
        words.append(f"it is not signed by {by}")
    return [*words, *_expiry(found, wanted, issuer, now)]


def _expiry(found: Certificate, wanted: Wanted, issuer: Issuer | None, now: datetime) -> Iterator[str]:
    ends, left = found.not_valid_after_utc, days_left(found, now)
    if found.not_valid_before_utc > now:
        yield f"it is not valid before {day(found.not_valid_before_utc)}"
    if (ends - now).total_seconds() >= wanted.renew_before:
        return
    # One that expires with its CA gains nothing from being issued anew.
    if ends > now and (_end(wanted, issuer, now) - ends).total_seconds() < _DAY:
        return
    if ends <= now:
        yield f"it expired on {day(ends)}"
    else:
        days = "1 day" if left == 1 else f"{left} days"
        yield f"it expires in {days} ({day(ends)}), renewed before {wanted.renew_before / _DAY:g}d"


def expires_with_ca(found: Certificate, wanted: Wanted, issuer: Issuer | None, now: datetime) -> bool:
    """Whether it is to be renewed by its date, and cannot be before its CA is."""
    ends = found.not_valid_after_utc
    return issuer is not None and now < ends and (ends - now).total_seconds() < wanted.renew_before


def _changed(before: frozenset[str], after: frozenset[str]) -> str:
    return " ".join(
        [*(f"+{name}" for name in sorted(after - before)), *(f"-{name}" for name in sorted(before - after))]
    )


def _is_ca(certificate: Certificate) -> bool:
    constraints = _extension(certificate, x509.BasicConstraints)
    return constraints is not None and constraints.ca


def _path_length(certificate: Certificate) -> int | None:
    constraints = _extension(certificate, x509.BasicConstraints)
    return None if constraints is None else constraints.path_length


def _usages(certificate: Certificate) -> frozenset[str]:
    found = _extension(certificate, x509.ExtendedKeyUsage)
    return frozenset() if found is None else frozenset(_USAGE_NAMES.get(oid, oid.dotted_string) for oid in found)


def _extension(certificate: Certificate, kind: Any) -> Any:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except (x509.ExtensionNotFound, ValueError):
        return None


def _issued_by(certificate: Certificate, issuer: Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


# making


def check_issuer(issuer: Issuer, now: datetime) -> None:
    """Raise ValueError if a CA cannot sign."""
    certificate = issuer.certificate
    if not _is_ca(certificate):
        raise ValueError("it is not the certificate of a CA (its basicConstraints do not say CA:TRUE)")
    if certificate.not_valid_after_utc <= now:
        raise ValueError(f"it expired on {day(certificate.not_valid_after_utc)}: renew the CA first")
    if issuer.key is not None and not same_key(issuer.key.public_key(), certificate.public_key()):
        raise ValueError("its key does not fit its certificate")


def _end(wanted: Wanted, issuer: Issuer | None, now: datetime) -> datetime:
    ends = now + timedelta(seconds=wanted.validity)
    return ends if issuer is None else min(ends, issuer.certificate.not_valid_after_utc)


def issue(wanted: Wanted, key: PrivateKey, issuer: Issuer | None, now: datetime) -> Certificate:
    """A new certificate, signed by a CA, or by its own key if there is none."""
    subject = x509.Name([x509.NameAttribute(_PARTS[part], value) for part, value in wanted.subject])
    signer = key if issuer is None else issuer.key
    assert signer is not None
    own = key.public_key()
    begins = now - _BEFORE
    if issuer is not None:
        begins = max(begins, issuer.certificate.not_valid_before_utc)
    is_rsa = isinstance(key, rsa.RSAPrivateKey)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(own)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(_end(wanted, issuer, now))
        .add_extension(x509.BasicConstraints(ca=wanted.ca, path_length=wanted.path_length), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, content_commitment=False, key_encipherment=is_rsa and not wanted.ca,
                data_encipherment=False, key_agreement=False, key_cert_sign=wanted.ca, crl_sign=wanted.ca,
                encipher_only=False, decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
        .add_extension(_signed_by(own if issuer is None else issuer.certificate), critical=False)
    )  # fmt: skip
    if wanted.usages:
        usages = [_USAGES[name] for name in sorted(wanted.usages)]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if wanted.sans:
        names = x509.SubjectAlternativeName([_general_name(name) for name in sorted(wanted.sans)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, _digest(signer))


def _signed_by(issuer: Any) -> x509.AuthorityKeyIdentifier:
    if not isinstance(issuer, x509.Certificate):
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer)
    known = _extension(issuer, x509.SubjectKeyIdentifier)
    if known is None:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.UniformResourceIdentifier(name) if "://" in name or ":" in name else x509.DNSName(name)


def _digest(key: PrivateKey) -> Any:
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return None
    large = isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.key_size > 256
    return hashes.SHA384() if large else hashes.SHA256()


def now() -> datetime:
    """This moment, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def fingerprint(certificate: Certificate) -> str:
    """Its sha256."""
    return certificate.fingerprint(hashes.SHA256()).hex()
