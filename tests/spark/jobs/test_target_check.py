"""Topics that jobs send to: whether they are there is asked before Spark starts."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cykafka.admin import AdminClient
from cykafka.spark.jobs.config import ConfigError, load
from cykafka.spark.jobs.keys import JOBS
from cykafka.spark.jobs.target_check import check_targets

GIVEN: dict[str, dict[str, Any]] = {
    "mirror": {"topics": "a", "checkpoint": "/c", "dead_letter_topic": "no-letters"},
    "redrive": {"topics": "a", "checkpoint": "/c", "parking_topic": "no-parking"},
    "replay": {"path": "/p"},
}


@pytest.fixture(scope="module")
def strict(kafka_cluster_factory: Any) -> str:
    """A cluster whose brokers make no topics, but for one that is there."""
    cluster = kafka_cluster_factory(properties={"auto.create.topics.enable": "false"})
    cluster.create_topic("there", 1)
    return str(cluster.bootstrap_servers)


def check(job: str, servers: str, **keys: Any) -> None:
    given = {"kafka.bootstrap.servers": servers, **GIVEN[job], **keys}
    check_targets(load(JOBS[job], None, given, {}))


def test_all_topics_that_are_missing_are_told(strict: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check("mirror", strict, to="none")
    assert [each.partition(":")[0] for each in caught.value.problems] == [
        "key \"to\" = 'none'",
        "key \"dead_letter_topic\" = 'no-letters'",
    ]

    with pytest.raises(
        ConfigError, match="key \"parking_topic\" = 'no-parking': there is no such"
    ):
        check("redrive", strict)
    with pytest.raises(ConfigError, match="key \"to\" = 'none': there is no such topic"):
        check("replay", strict, to="none")


def test_topics_that_are_there_are_fine(strict: str) -> None:
    check(
        "mirror", strict, transform="SELECT value, 'x' AS topic FROM r", dead_letter_topic="there"
    )
    check("replay", strict, to="there")
    check("replay", strict)


def test_a_dry_run_sends_nothing(strict: str) -> None:
    check("mirror", strict, to="none", dry_run=True)


def test_the_cluster_that_is_written_to_is_asked(strict: str) -> None:
    keys = {"to": "there", "dead_letter_topic": "there", "topics": "b"}
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "sink.kafka.bootstrap.servers": strict}

    with pytest.raises(ConfigError, match='"dead_letter_topic"'):
        check("mirror", "127.0.0.1:1", **{**keys, **given, "dead_letter_topic": "none"})


def test_topics_that_brokers_make_need_not_be_there(cluster: Any, unique: Any) -> None:
    name = unique("none")

    check("replay", cluster.bootstrap_servers, to=name)

    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        assert name not in admin.list_topics(timeout=30).topics, "the question has made it"


def test_brokers_that_do_not_tell_what_they_do_are_believed(
    strict: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from cykafka import KafkaError, KafkaException

    def refuse(*_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))

    monkeypatch.setattr(AdminClient, "describe_configs", refuse)

    with caplog.at_level(logging.WARNING):
        check("replay", strict, to="none")

    assert "topics that are not there: none" in "\n".join(caplog.messages)
