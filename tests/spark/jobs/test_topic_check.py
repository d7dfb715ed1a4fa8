"""Jobs check before Spark starts whether their topics exist."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cykafka.admin import AdminClient
from cykafka.spark.consumers import OpenConsumer
from cykafka.spark.jobs import topic_check
from cykafka.spark.jobs.config import JOBS
from cykafka.spark.jobs.load import load
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.topic_check import check_topics

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
    assert [each.partition(":")[0] for each in caught.value.problems] == [
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
    assert [each.partition(",")[0] for each in caught.value.problems] == [
        "key \"topics\": topic 'none' does not exist",
        "key \"topics\": topic 'misspelt' does not exist",
    ]

    check(job, strict, **keys)
    check(job, strict, **{**keys, "topics": "none", "source.failOnDataLoss": "FALSE"})


def test_missing_sources_and_targets_are_named_together(strict: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check("mirror", strict, topics="a", to="b", dead_letter_topic="c")

    assert [each.split()[1].strip(":") for each in caught.value.problems] == [
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
        RuntimeError, match=r"servers = 127\.0\.0\.1:1 answers: .*Connection refused"
    ):
        check(job, "127.0.0.1:1", **({"to": "t"} if job == "replay" else {}))


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
