"""Certificates and keys from memory: a TLS server gets them from the client."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID
from machine import WAIT_S

import cykafka

pytestmark = pytest.mark.ours

PASSWORD = "its password"
Encoding = serialization.Encoding


@dataclass
class Identity:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_as(self, encoding: Encoding) -> bytes:
        return self.certificate.public_bytes(encoding)

    def key_as(self, encoding: Encoding, password: str | None = None) -> bytes:
        protection: Any = serialization.NoEncryption()
        if password is not None:
            protection = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, protection)


def certify(name: str, issuer: Identity | None = None) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    )
    return Identity(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


@pytest.fixture(scope="module")
def authority() -> Identity:
    return certify("the authority")


@pytest.fixture(scope="module")
def client(authority: Identity) -> Identity:
    return certify("the client", authority)


@dataclass
class Server:
    """The address of a server, and the clients that connected to it."""

    address: str
    seen: list[str]
    failed: list[str]
    heard: threading.Event


@pytest.fixture
def server(authority: Identity, tmp_path: Path) -> Iterator[Server]:
    """A TLS server that requires client certificates of the authority."""
    own = certify("the server", authority)
    (tmp_path / "chain.pem").write_bytes(
        own.key_as(Encoding.PEM) + own.certificate_as(Encoding.PEM)
    )
    (tmp_path / "ca.pem").write_bytes(authority.certificate_as(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "chain.pem")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = Server(f"localhost:{listening.getsockname()[1]}", [], [], threading.Event())

        def serve() -> None:
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(WAIT_S)
                    if stopping.is_set():
                        return
                    try:
                        with context.wrap_socket(connection, server_side=True) as secured:
                            certificate: Any = secured.getpeercert()
                            found.seen.append(certificate["subject"][0][0][1])
                    except ssl.SSLError as error:
                        found.failed.append(str(error))
                    found.heard.set()

        stopping = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        yield found
        stopping.set()
        socket.create_connection(listening.getsockname()).close()
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture
def connect(server: Server) -> Callable[..., list[str]]:
    """Connect a client with these properties; return the subjects that the server has seen."""

    def connect(**properties: Any) -> list[str]:
        config: dict[str, Any] = {
            "bootstrap.servers": server.address,
            "broker.address.family": "v4",
            "security.protocol": "ssl",
            "log_level": 0,
            **{name.replace("__", "."): value for name, value in properties.items()},
        }
        producer = cykafka.Producer(config)
        try:
            assert server.heard.wait(WAIT_S)
        finally:
            producer.close()
        return server.seen[:1]

    return connect


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_certificate_and_key_in_memory_are_used(
    connect: Callable[..., list[str]], authority: Identity, client: Identity, encoding: Encoding
) -> None:
    seen = connect(
        ssl_ca=authority.certificate_as(encoding),
        ssl_certificate=client.certificate_as(encoding),
        ssl_key=client.key_as(encoding),
    )

    assert seen == ["the client"]


@pytest.mark.parametrize("as_text", [True, False])
def test_pem_properties_take_text_and_bytes(
    connect: Callable[..., list[str]], authority: Identity, client: Identity, as_text: bool
) -> None:
    pems = {
        "ssl__ca__pem": authority.certificate_as(Encoding.PEM),
        "ssl__certificate__pem": client.certificate_as(Encoding.PEM),
        "ssl__key__pem": client.key_as(Encoding.PEM),
    }

    assert connect(**{name: pem.decode() if as_text else pem for name, pem in pems.items()}) == [
        "the client"
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_pkcs12_with_its_password_is_used(
    connect: Callable[..., list[str]], authority: Identity, client: Identity, kind: Any
) -> None:
    store = kind(
        pkcs12.serialize_key_and_certificates(
            b"client",
            client.key,
            client.certificate,
            [authority.certificate],
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
    )

    seen = connect(ssl_certificate=store, ssl_key=store, ssl_ca=store, ssl__key__password=PASSWORD)

    assert seen == ["the client"]


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_key_with_a_password(
    connect: Callable[..., list[str]], authority: Identity, client: Identity, encoding: Encoding
) -> None:
    properties = {
        "ssl_ca": authority.certificate_as(encoding),
        "ssl_certificate": client.certificate_as(encoding),
        "ssl_key": client.key_as(Encoding.PEM, PASSWORD),
    }

    assert connect(**properties, ssl__key__password=PASSWORD) == ["the client"]
    with pytest.raises(cykafka.KafkaException, match="ssl_key: "):
        connect(**properties, ssl__key__password="another")


def test_authority_in_memory_decides_which_servers_are_trusted(
    connect: Callable[..., list[str]], server: Server, client: Identity
) -> None:
    stranger = certify("somebody else")

    seen = connect(
        ssl_ca=stranger.certificate_as(Encoding.DER),
        ssl_certificate=client.certificate_as(Encoding.DER),
        ssl_key=client.key_as(Encoding.DER),
    )

    assert seen == []
    assert "UNKNOWN_CA" in server.failed[0].upper().replace(" ", "_")


@pytest.mark.parametrize("key", ["ssl_ca", "ssl_certificate", "ssl_key"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"nonsense", ValueError),
        (b"", ValueError),
        (b"\x30", cykafka.KafkaException),
        (b"\x30\x03\x02\x01\x03", cykafka.KafkaException),
        (b"-----BEGIN NOTHING-----", cykafka.KafkaException),
        (5, TypeError),
    ],
)
def test_error_for_an_invalid_certificate_names_it(
    key: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"{key}: "):
        cykafka.Producer({key: value})


def test_none_means_no_certificate() -> None:
    assert cykafka.Producer({"ssl_ca": None, "ssl_certificate": None, "ssl_key": None}).close()
