"""AdminClient: the cluster, its users, and synchronous calls."""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

import pytest
from fixture_types import CodeOf, Unique, WaitUntil
from machine import WAIT_S


def test_cluster_is_described(kafka: ModuleType, api: ModuleType, admin: Any) -> None:
    result = admin.describe_cluster(request_timeout=WAIT_S).result(WAIT_S)

    assert isinstance(result, api.DescribeClusterResult)
    assert result.cluster_id == admin.cluster_id(WAIT_S)
    assert result.authorized_operations is None
    assert isinstance(result.controller, kafka.Node)
    assert result.controller.id in {node.id for node in result.nodes}
    assert {node.id for node in result.nodes} == set(admin.list_topics(timeout=WAIT_S).brokers)
    assert all(node.port > 0 and node.host for node in result.nodes)


def test_cluster_is_described_with_authorized_operations(api: ModuleType, admin: Any) -> None:
    result = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)

    assert api.AclOperation.ALTER in result.authorized_operations


def test_scram_credentials_are_set_described_and_deleted(
    kafka: ModuleType, api: ModuleType, admin: Any, unique: Unique, wait_until: WaitUntil
) -> None:
    user, other = unique("user"), unique("user")
    sha256, sha512 = api.ScramMechanism.SCRAM_SHA_256, api.ScramMechanism.SCRAM_SHA_512
    given = [
        api.UserScramCredentialUpsertion(
            user, api.ScramCredentialInfo(sha256, 8192), b"password", b"some salt"
        ),
        api.UserScramCredentialUpsertion(other, api.ScramCredentialInfo(sha512, 5000), b"\0\xff"),
    ]
    more = [api.UserScramCredentialUpsertion(user, api.ScramCredentialInfo(sha512, 4096), b"p")]

    futures = admin.alter_user_scram_credentials(given, request_timeout=WAIT_S)

    assert set(futures) == {user, other}
    assert [future.result(WAIT_S) for future in futures.values()] == [None, None]
    assert admin.alter_user_scram_credentials(more)[user].result(WAIT_S) is None

    def describe() -> Any:
        return admin.describe_user_scram_credentials([user])[user]

    def iterations() -> dict[Any, int]:
        if describe().exception(WAIT_S) is not None:
            return {}
        infos = describe().result(WAIT_S).scram_credential_infos
        return {info.mechanism: info.iterations for info in infos}

    # The controller confirms a change before the queried broker has learned of it.
    expected = {sha256: 8192, sha512: 4096}
    wait_until(lambda: iterations() == expected, lambda: admin.poll(0.1))
    description = describe().result(WAIT_S)
    assert isinstance(description, api.UserScramCredentialsDescription)
    assert description.user == user
    everybody = admin.describe_user_scram_credentials().result(WAIT_S)
    assert everybody[other].scram_credential_infos[0].iterations == 5000

    for name, mechanism in ((user, sha256), (user, sha512), (other, sha512)):
        taken = [api.UserScramCredentialDeletion(name, mechanism)]
        assert admin.alter_user_scram_credentials(taken)[name].result(WAIT_S) is None

    wait_until(lambda: not iterations(), lambda: admin.poll(0.1))
    assert describe().exception(WAIT_S).args[0] == kafka.KafkaError.RESOURCE_NOT_FOUND


def test_credentials_fail_user_by_user(
    kafka: ModuleType, api: ModuleType, admin: Any, unique: Unique, code_of: CodeOf
) -> None:
    user, missing = unique("user"), unique("missing")
    sha256 = api.ScramMechanism.SCRAM_SHA_256
    few = api.ScramCredentialInfo(sha256, 1)

    futures = admin.alter_user_scram_credentials(
        [
            api.UserScramCredentialUpsertion(user, few, b"password"),
            api.UserScramCredentialDeletion(missing, sha256),
        ]
    )

    assert code_of(futures[user]) == kafka.KafkaError.UNACCEPTABLE_CREDENTIAL
    assert code_of(futures[missing]) == kafka.KafkaError.RESOURCE_NOT_FOUND
    assert "password" not in str(futures[user].exception())
    futures = admin.describe_user_scram_credentials([missing])
    assert code_of(futures[missing]) == kafka.KafkaError.RESOURCE_NOT_FOUND


@pytest.mark.ours
def test_error_has_no_control_characters(admin: Any, unique: Unique) -> None:
    missing = unique("missing")

    futures = admin.describe_user_scram_credentials([missing])

    assert str(futures[missing].exception(WAIT_S).args[0].str()).endswith(missing)


@pytest.mark.ours
@pytest.mark.usefixtures("alice_alone_administers")
def test_refused_credentials_have_the_broker_s_error(
    kafka: ModuleType, api: ModuleType, secured: Any, code_of: CodeOf
) -> None:
    with api.AdminClient(secured.client_config("sasl_plain", "bob")) as client:
        everybody = client.describe_user_scram_credentials()
        somebody = client.describe_user_scram_credentials(["zoe"])["zoe"]
        refused = [code_of(everybody), code_of(somebody)]

        assert refused == [kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED] * 2
        assert everybody.exception().args[0].str() == "Broker: Cluster authorization failed"


@pytest.mark.ours
@pytest.mark.usefixtures("alice_alone_administers")
def test_authorization_error_that_arrives_during_close_is_safe(
    api: ModuleType, secured: Any
) -> None:
    for _ in range(50):
        with api.AdminClient(secured.client_config("sasl_plain", "bob")) as client:
            future = client.describe_user_scram_credentials(["zoe"])["zoe"]
            assert future.exception(WAIT_S) is not None
            client.describe_user_scram_credentials()


def test_credentials_of_an_empty_user_list_are_empty(admin: Any) -> None:
    assert admin.describe_user_scram_credentials([]) == {}


def test_credentials_described_twice_in_a_request_fail(
    kafka: ModuleType, admin: Any, unique: Unique, code_of: CodeOf
) -> None:
    user = unique("user")

    futures = admin.describe_user_scram_credentials([user, user])

    assert code_of(futures[user]) == kafka.KafkaError._INVALID_ARG


def test_poll_serves_callbacks(
    api: ModuleType, cluster: Any, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    stats: list[str] = []
    logger = logging.getLogger("test_admin")
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "statistics.interval.ms": 50,
        "debug": "admin",
    }

    with (
        caplog.at_level(logging.DEBUG, "test_admin"),
        api.AdminClient(config, stats_cb=stats.append, logger=logger) as admin,
    ):
        admin.describe_cluster().result(WAIT_S)
        wait_until(lambda: stats and caplog.records, lambda: admin.poll(0.1))

    assert stats[0].startswith("{")


def test_poll_returns_the_number_of_callbacks_served(admin: Any) -> None:
    assert admin.poll(0) == 0
    assert len(admin) == 0


def test_credentials_can_be_set(admin: Any) -> None:
    admin.set_sasl_credentials("user", "password")

    assert admin.describe_cluster().result(WAIT_S).nodes
