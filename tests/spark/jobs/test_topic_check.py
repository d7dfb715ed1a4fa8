"""Jobs check before Spark starts whether their topics exist."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cykafka.admin import AdminClient
from cykafka.spark.clients.consumers import OpenConsumer
from cykafka.spark.jobs.config import topic_check
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.config.topic_check import check_partitions, check_topics
from cykafka.spark.jobs.problems import ConfigError

GIVEN: dict[str, dict[str, Any]] = {
    "mirror": {"topics": "read", "checkpoint": "/c", "dead_letter_topic": "no-letters"},
    "redrive": {"topics": "read", "checkpoint": "/c", "parking_topic": "no-parking"},
    "replay": {"path": "/p"},
    "archive": {"topics": "read", "path": "/p", "checkpoint": "/c"},
    "profile": {"topics": "read"},
}


@pytest.fixture(scope="module")
def strict(tidy: Any) -> str:
    """A cluster without auto-created topics that has three topics."""
    for name in ("read", "there", "letters"):
        tidy.create_topic(name, 1)
    return str(tidy.bootstrap_servers)


def check(job: str, servers: str, **keys: Any) -> None:
    given = {"kafka.bootstrap.servers": servers, **GIVEN[job], **keys}
    check_topics(load(JOBS[job], None, given, {}))


def test_all_missing_topics_are_named(strict: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check("mirror", strict, to="none")
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "key \"to\" = 'none'",
        "key \"dead_letter_topic\" = 'no-letters'",
    ]

    with pytest.raises(
        ConfigError, match="key \"parking_topic\" = 'no-parking': the topic does not"
    ):
        check("redrive", strict)
    with pytest.raises(ConfigError, match="key \"to\" = 'none': the topic does not exist"):
        check("replay", strict, to="none")


def test_existing_topics_pass(strict: str) -> None:
    check(
        "mirror", strict, transform="SELECT value, 'x' AS topic FROM r", dead_letter_topic="there"
    )
    check("replay", strict, to="there")
    check("replay", strict)


@pytest.mark.parametrize("job", [name for name, given in GIVEN.items() if "topics" in given])
def test_source_topics_must_exist(strict: str, job: str) -> None:
    names = {"mirror": {"to": "there", "dead_letter_topic": "letters"},
             "redrive": {"parking_topic": "letters"}}  # fmt: skip
    keys = names.get(job, {})

    with pytest.raises(ConfigError) as caught:
        check(job, strict, **{**keys, "topics": "none,read,misspelt"})
    assert [problem.partition(",")[0] for problem in caught.value.problems] == [
        "key \"topics\": topic 'none' does not exist",
        "key \"topics\": topic 'misspelt' does not exist",
    ]

    check(job, strict, **keys)
    check(job, strict, **{**keys, "topics": "none", "source.failOnDataLoss": "FALSE"})


def test_missing_sources_and_targets_are_named_together(strict: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check("mirror", strict, topics="a", to="b", dead_letter_topic="c")

    assert [problem.split()[1].strip(":") for problem in caught.value.problems] == [
        '"topics"',
        '"to"',
        '"dead_letter_topic"',
    ]


def test_topic_created_moments_ago_is_found(
    cluster: Any, unique: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique("late")
    all_topics = OpenConsumer.all_topics
    asked = []

    def later(self: OpenConsumer, timeout_s: float) -> dict[str, Any]:
        asked.append(1)
        if len(asked) == 3:
            cluster.create_topic(name, 1)
        return all_topics(self, timeout_s)

    monkeypatch.setattr(OpenConsumer, "all_topics", later)

    check("profile", cluster.bootstrap_servers, topics=name)

    assert len(asked) == 3


@pytest.mark.parametrize("job", ["profile", "replay"])
def test_error_names_brokers_that_do_not_answer(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_check, "_REQUEST_S", 2.0)

    with pytest.raises(
        RuntimeError, match=r"servers = 127\.0\.0\.1:1 responds: .*Connection refused"
    ):
        check(job, "127.0.0.1:1", **({"to": "t"} if job == "replay" else {}))


def test_error_names_brokers_that_do_not_tell_their_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_check, "_REQUEST_S", 2.0)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", **GIVEN["replay"]}
    config: Any = load(JOBS["replay"], None, given, {})

    with pytest.raises(RuntimeError, match=r"servers = 127\.0\.0\.1:1 responds: "):
        check_partitions(config, {"t": 1})


def test_a_dry_run_sends_nothing(strict: str) -> None:
    check("mirror", strict, to="none", dry_run=True)


def test_target_topics_are_looked_up_in_the_target_cluster(strict: str) -> None:
    given = {"source.failOnDataLoss": "false", "sink.kafka.bootstrap.servers": strict}

    with pytest.raises(ConfigError, match='"dead_letter_topic"'):
        check("mirror", "127.0.0.1:1", to="there", dead_letter_topic="none", **given)


def test_source_topics_are_looked_up_in_the_source_cluster(strict: str) -> None:
    with pytest.raises(ConfigError, match='"topics"'):
        check(
            "profile", "127.0.0.1:1", topics="none", **{"source.kafka.bootstrap.servers": strict}
        )


def test_topics_that_brokers_create_may_be_missing(cluster: Any, unique: Any) -> None:
    name = unique("none")

    check("replay", cluster.bootstrap_servers, to=name)

    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        assert name not in admin.list_topics(timeout=30).topics, "the check has created the topic"


def test_missing_topics_only_warn_if_brokers_hide_auto_create(
    strict: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from cykafka import KafkaError, KafkaException

    def refuse(*_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))

    monkeypatch.setattr(AdminClient, "describe_configs", refuse)

    with caplog.at_level(logging.WARNING):
        check("replay", strict, to="none")

    assert "topics that do not exist: none" in "\n".join(caplog.messages)


def test_the_target_needs_the_partitions_of_the_source(strict: str, tidy: Any) -> None:
    tidy.create_topic("wide", 3)
    keys = {"topics": "read,wide", "to": "there", "dead_letter_topic": "letters"}

    for dry_run in (False, True):
        with pytest.raises(ConfigError, match=r"topic 'there' has 1 partition.* to partition 2"):
            check("mirror", strict, **keys, keep_partitions=True, dry_run=dry_run)
    check("mirror", strict, **keys)
    check("mirror", strict, **{**keys, "to": "wide", "topics": "read"}, keep_partitions=True)


def test_tighter_limits_of_the_target_are_a_warning(
    strict: str, tidy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"max.message.bytes": 1_000, "message.timestamp.before.max.ms": 5_000}
    tidy.create_topic("tight", 1, config=limits)
    keys = {"dead_letter_topic": "letters", "to": "tight"}
    size = "topic tight has max.message.bytes = 1000, and topic read has 1048588"

    check("mirror", strict, **keys, keep_timestamps=False)
    assert [message.partition(":")[0] for message in caplog.messages] == [size]
    caplog.clear()
    check("mirror", strict, **keys)
    size_too, time = caplog.messages
    assert size_too.startswith(size)
    assert time.startswith("topic tight has message.timestamp.before.max.ms = 5000")
    caplog.clear()
    check("mirror", strict, **{**keys, "topics": "tight", "to": "read"})
    assert caplog.messages == []
