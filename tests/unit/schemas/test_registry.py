"""The client of Schema Registry: authentication, TLS, retries, its cache, and its errors."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from cykafka.schemas.registry import (
    NotFoundError,
    Registry,
    RegistryError,
    mistakes,
)

from cykafka.schemas.document import Document, UnfitError
from cykafka.testing import SchemaRegistry

SCHEMA = '"string"'
AGAIN = {"retries.wait.ms": "1"}


@pytest.mark.parametrize(
    ("server", "right", "wrong"),
    [
        ({"user": "ada:sé€cret"}, {"basic.auth.user.info": "ada:sé€cret"},
         {"basic.auth.user.info": "ada:mistaken"}),
        ({"user": "ada:se:cret"}, {"basic.auth.user.info": "ada:se:cret"},
         {"basic.auth.user.info": "ada:mistaken"}),
        ({"token": "to.ken"}, {"bearer.auth.token": "to.ken"}, {"bearer.auth.token": "mistaken"}),
        ({"token": "to.ken"}, {"bearer.auth.token": "to.ken"}, {}),
    ],
)  # fmt: skip
def test_authentication(
    server: dict[str, str], right: dict[str, str], wrong: dict[str, str]
) -> None:
    with SchemaRegistry(**server) as registry:
        number = registry.add("a-value", SCHEMA)
        url = {"url": registry.url}

        assert Registry({**url, **right}).by_id(number).text == SCHEMA
        with pytest.raises(RegistryError, match=r"refuses the request.*401 Unauth") as caught:
            Registry({**url, **wrong}).by_id(number)

    name = next(iter(wrong), "basic.auth.user.info")
    assert f'key "registry.{name}"' in str(caught.value)
    assert "mistaken" not in str(caught.value)


def test_tls_with_an_authority_and_a_client_certificate(tmp_path: Path) -> None:
    authority, ours = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ours))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    client = authority.issue_cert("client")
    client.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    with SchemaRegistry(tls=context) as registry:
        number = registry.add("a-value", SCHEMA)
        given = {"url": registry.url, "max.retries": "0", "ssl.ca.location": str(ours)}
        cert = {"ssl.certificate.location": str(tmp_path / "client.pem")}

        assert Registry({**given, **cert}).by_id(number).text == SCHEMA
        with pytest.raises(RegistryError, match=r"does not respond.*certificate"):
            Registry(given | {"ssl.ca.location": ""} | cert).by_id(number)
        with pytest.raises(RegistryError, match="does not respond"):
            Registry(given).by_id(number)


def test_a_registry_that_recovers_is_asked_again() -> None:
    with SchemaRegistry() as registry:
        number = registry.add("a-value", SCHEMA)
        registry.fails = 2

        assert Registry({"url": registry.url, **AGAIN}).by_id(number).text == SCHEMA
        registry.fails = 9
        with pytest.raises(RegistryError, match=r"fails .*503 the leader is not known"):
            Registry({"url": registry.url, **AGAIN}).by_id(number)
        registry.fails = 0
        with pytest.raises(RegistryError, match=r"fails .*404 .*the address belongs to Schema"):
            Registry({"url": f"{registry.url}/wrong", **AGAIN}).by_id(number)
        away = registry.url

    client = Registry({"url": away, **AGAIN})
    with pytest.raises(RegistryError, match=r'key "registry.url": .* 4 attempts\): .*refused'):
        client.by_id(number)


def test_the_next_url_is_asked_if_one_is_away() -> None:
    with SchemaRegistry() as gone:
        pass
    with SchemaRegistry() as registry:
        number = registry.add("a-value", SCHEMA)

        client = Registry({"url": f"{gone.url}, {registry.url}/", "max.retries": "0"})

        assert client.by_id(number).text == SCHEMA


@pytest.mark.parametrize(("ttl", "requests"), [("60", 1), ("0", 3)])
def test_the_latest_version_and_absent_ones_expire(ttl: str, requests: int) -> None:
    with SchemaRegistry() as registry:
        registry.add("a/value", SCHEMA)
        client = Registry({"url": registry.url, "cache.latest.ttl.sec": ttl})
        for _ in range(3):
            assert client.version("a/value").id == client.version("a/value", "1").id == 1
            with pytest.raises(NotFoundError):
                client.version("b-value")

        counts = dict(registry.requests)

    assert counts == {
        "GET /subjects/a%2Fvalue/versions/latest": requests,
        "GET /subjects/a%2Fvalue/versions/1": 1,
        "GET /subjects/b-value/versions/latest": requests,
    }


def test_mistakes_are_named_without_secrets() -> None:
    found = mistakes(
        {
            "url": "https://ada:secret@host,ftp://x",
            "basic.auth.userinfo": "x",
            "basic.auth.user.info": "secret",
            "bearer.auth.token": "secret",
            "ssl.ca.location": "/missing",
            "ssl.key.location": "/missing",
            "timeout": "-1",
            "basic.auth.credentials.source": "SASL_INHERIT",
            "auto.register.schemas": "maybe",
            "subject.name.strategy.type": "topic",
        }
    )

    assert [name for name, _ in found] == [
        "basic.auth.userinfo", "url", "url", "basic.auth.user.info", "bearer.auth.token",
        "ssl.key.location", "ssl.ca.location", "ssl.key.location", "timeout",
        "basic.auth.credentials.source",
        "auto.register.schemas", "subject.name.strategy.type",
    ]  # fmt: skip
    assert "secret" not in str(found)
    for wrong in (
        {"url": "http://[::1"},
        {"url": "http://host:abc"},
        {"timeout": "0"},
        {"timeout": "9" * 5000},
        {"bearer.auth.token": "secret\n"},
        {"bearer.auth.token": "secr€t"},
        {"bearer.auth.logical.cluster": "a b"},
    ):
        ((name, words),) = mistakes({"url": "http://host", **wrong})
        assert name in wrong
        assert "secr" not in words
    assert mistakes({}) != []
    assert mistakes({"url": "http://host:8081/path"}) == []


def test_references_follow_those_that_they_refer_to() -> None:
    with SchemaRegistry() as registry:
        before = []
        for name in ("a", "b", "c"):
            registry.add(f"{name}-value", f'"{name}"', references=before)
            before = [{"name": name, "subject": f"{name}-value", "version": 1}]
        top = registry.add("top-value", '"top"', references=before)
        registry.deleted |= {"a-value", "top-value"}

        document = Registry({"url": registry.url}).by_id(top)

    assert document.parts == (("a", '"a"'), ("b", '"b"'), ("c", '"c"'))
    assert [each.name for each in document.references] == ["c"]


def test_only_protobuf_is_requested_in_its_serialized_form() -> None:
    with SchemaRegistry() as registry:
        avro = registry.add("a-value", SCHEMA)
        part = registry.add("part.proto", "UGFydA==", "PROTOBUF")
        references = [{"name": "part.proto", "subject": "part.proto", "version": 1}]
        whole = registry.add("p-value", "V2hvbGU=", "PROTOBUF", references)

        client = Registry({"url": registry.url})

        assert client.by_id(avro) == client.version("a-value")
        assert client.by_id(whole).parts == (("part.proto", "UGFydA=="),)
        assert client.by_id(part).text == "UGFydA=="
        assert registry.requests[f"GET /schemas/ids/{avro}"] == 1


def test_the_files_that_the_registry_knows_need_no_references() -> None:
    document = Document("protobuf", "QQ==", (("google/protobuf/timestamp.proto", "QQ=="),))
    other = Document("protobuf", "QQ==", (*document.parts, ("other.proto", "QQ==")))
    with SchemaRegistry() as registry:
        client = Registry({"url": registry.url, "auto.register.schemas": "true"})

        assert client.id_of("p-value", document) == 1
        with pytest.raises(UnfitError, match="imports others"):
            client.id_of("p-value", other)


def test_a_pause_that_the_registry_asks_for_is_not_taken() -> None:
    with SchemaRegistry() as registry:
        number = registry.add("a-value", SCHEMA)
        registry.fails, registry.retry_after = 1, "86400"

        assert Registry({"url": registry.url, **AGAIN}).by_id(number).text == SCHEMA
