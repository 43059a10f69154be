"""A federation's keys: its own authority, the server's certificate, and a pair of keys for each site.

Everything is elliptic, P-256. The authority signs one certificate, that of the SuperLink, so that sites know whom they
talk to; sites are known by their public keys, which the master registers.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from f2cto.config import SettingsError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError as error:
    message = "A federation needs `pip install f2cto[flower]`."
    raise ImportError(message) from error

AUTHORITY = "f2cto federation"
DAYS = 825  # the longest that common TLS libraries take a server's certificate for


@dataclass(frozen=True)
class Pair:
    """What is kept, and what is shown."""

    private: bytes
    public: bytes


@dataclass(frozen=True)
class Certificates:
    """The authority and the server it vouches for: keys and certificates as PEM."""

    authority: Pair
    server: Pair


def site_keys() -> Pair:
    """A site's pair in OpenSSH's format, the only one that Flower reads."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return Pair(private, public + b"\n")


def certificates(hosts: Sequence[str], now: dt.datetime) -> Certificates:
    """A new authority and a server's certificate for `hosts`, names or addresses, valid from `now` on."""
    top, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    above = x509.SubjectKeyIdentifier.from_public_key(top.public_key())
    root = (
        _draft(AUTHORITY, top, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(above, critical=False)
        .sign(top, hashes.SHA256())
    )
    leaf = (
        _draft(hosts[0][:64], server, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(above), critical=False)
        .add_extension(x509.SubjectAlternativeName([_named(host) for host in hosts]), critical=False)
        .sign(top, hashes.SHA256())
    )
    return Certificates(Pair(_pem(top), _certificate(root)), Pair(_pem(server), _certificate(leaf)))


def _draft(subject: str, key: ec.EllipticCurvePrivateKey, now: dt.datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + dt.timedelta(days=DAYS))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    off = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=True, key_cert_sign=signs, crl_sign=signs, **off)


def _named(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        msg = f"A host is a name in plain letters or an address; got `{host}`."
        raise SettingsError(msg) from error


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
