"""Check before Spark starts that a job's topics exist.

Otherwise a missing dead letter topic would show only at the first bad record, maybe days later.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterable, Mapping
from typing import Literal

from cykafka import KafkaException
from cykafka.admin import AdminClient, ConfigResource, ResourceType
from cykafka.spark.client import ClientConfig, client_config
from cykafka.spark.consumers import NoAnswerError, OpenConsumer, consumer_config
from cykafka.spark.jobs.config import JobConfig, TopicKeys
from cykafka.spark.jobs.problems import ConfigError

__all__ = ["check_topics"]

_TARGETS = ("to", "dead_letter_topic", "parking_topic")
_REQUEST_S = 60.0
# Pauses between attempts: a broker that has just started does not know the topics yet.
_PAUSES_S = (0.5, 1.0)
_ON_DEMAND = "auto.create.topics.enable"

_log = logging.getLogger("cykafka.spark")


def check_topics(config: JobConfig) -> None:
    """Ask the brokers for the topics that the configuration names.

    Topics to read may be missing with ``source.failOnDataLoss = false``. Topics to write may be
    missing if brokers create topics on demand, and in a dry run.

    Raises
    ------
    ConfigError
        Topics are missing.
    RuntimeError
        No broker answers.
    """
    problems = [*_sources(config), *_targets(config)]
    if problems:
        raise ConfigError(problems)


def _sources(config: JobConfig) -> list[str]:
    options = config.source_options()
    lowered = {name.lower(): value.lower() for name, value in options.items()}
    topics = config.topics if isinstance(config, TopicKeys) else None
    if not topics or lowered.get("failondataloss") == "false":
        return []
    missing = _missing(topics, _client(options, "source"))
    return [
        f'key "topics": topic {topic!r} does not exist, or this user may not see it; create it, '
        "or set source.failOnDataLoss to false to read it once it exists"
        for topic in missing
    ]


def _targets(config: JobConfig) -> list[str]:
    wanted = {name: topic for name in _TARGETS if (topic := getattr(config, name, None))}
    if not wanted or config.is_dry_run:
        return []
    client = _client(config.sink_options(), "admin")
    missing = _missing(wanted.values(), client)
    if not missing or _are_made(missing, client):
        return []
    return [
        f'key "{name}" = {topic!r}: the topic does not exist, or this user may not see it; '
        "create it"
        for name, topic in wanted.items()
        if topic in missing
    ]


def _client(options: Mapping[str, str], role: Literal["source", "admin"]) -> ClientConfig:
    # The source and the sink give the same warnings.
    with warnings.catch_warnings(action="ignore"):
        return client_config(options, role=role)


def _missing(topics: Iterable[str], client: ClientConfig) -> list[str]:
    """The topics that do not exist, or that the user may not see."""
    brokers = OpenConsumer(consumer_config(client, "cykafka-topic-check"))  # it joins no group
    try:
        for pause in (*_PAUSES_S, None):
            # Request all topics: a request for one topic may create it.
            there = brokers.all_topics(_REQUEST_S)
            missing = [topic for topic in topics if topic not in there]
            if not missing or pause is None:
                break
            time.sleep(pause)
    except NoAnswerError as error:
        raise RuntimeError(
            f"no broker of kafka.bootstrap.servers = {client['bootstrap.servers']} answers: "
            f"{error.args[0].str()}. Check that the brokers are up, and that security.protocol "
            "and the sasl.* and ssl.* properties fit them"
        ) from None
    finally:
        brokers.close()
    return missing


def _are_made(missing: Iterable[str], client: ClientConfig) -> bool:
    """Whether brokers create missing topics on demand; True if they do not say."""
    with AdminClient(dict(client)) as admin:
        broker = str(min(admin.list_topics(timeout=_REQUEST_S).brokers))
        resource = ConfigResource(ResourceType.BROKER, broker)
        try:
            (answer,) = admin.describe_configs([resource]).values()
            entry = answer.result(_REQUEST_S).get(_ON_DEMAND)
            return entry is None or entry.value == "true"  # None: not Apache Kafka
        except KafkaException as error:
            _log.warning(
                "topics that do not exist: %s; cannot find out whether brokers create them on "
                "demand: %s",
                ", ".join(sorted(missing)),
                error,
            )
            return True
