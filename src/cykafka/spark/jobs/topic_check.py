"""Whether the topics of a job are there, asked before Spark starts.

A dead letter topic that is missing would else be noticed at the first bad record, days later.
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
from cykafka.spark.jobs.config import JobConfig
from cykafka.spark.jobs.errors import ConfigError

__all__ = ["check_topics"]

_TARGETS = ("to", "dead_letter_topic", "parking_topic")
_REQUEST_S = 60.0
# A broker that has just started knows of no topics yet.
_PAUSES_S = (0.5, 1.0)
_ON_DEMAND = "auto.create.topics.enable"

_log = logging.getLogger("cykafka.spark")


def check_topics(config: JobConfig) -> None:
    """Ask the brokers for the topics that the configuration names.

    Those that are read may be missing with ``source.failOnDataLoss = false``, those that are sent
    to where brokers make them, and in a dry run.

    Raises
    ------
    ConfigError
        Some are not there.
    RuntimeError
        No broker answers.
    """
    problems = [*_sources(config), *_targets(config)]
    if problems:
        raise ConfigError(problems)


def _sources(config: JobConfig) -> list[str]:
    options = config.source_options()
    lowered = {name.lower(): value.lower() for name, value in options.items()}
    topics = getattr(config, "topics", None) if config.has_source else None
    if not topics or lowered.get("failondataloss") == "false":
        return []
    missing = _missing(topics, _client(options, "source"))
    return [
        f'key "topics": there is no topic {topic!r}, or this user may not know of it; create it, '
        "or set source.failOnDataLoss to false to read it once it is there"
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
        f'key "{name}" = {topic!r}: there is no such topic, or this user may not know of it; '
        "create it"
        for name, topic in wanted.items()
        if topic in missing
    ]


def _client(options: Mapping[str, str], role: Literal["source", "admin"]) -> ClientConfig:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the source and the sink say it, too
        return client_config(options, role=role)


def _missing(topics: Iterable[str], client: ClientConfig) -> list[str]:
    """The topics that brokers do not show."""
    brokers = OpenConsumer(consumer_config(client, "cykafka-topic-check"))  # it joins no group
    try:
        for pause in (*_PAUSES_S, None):
            # All of them: whoever asks for one topic may have it made.
            there = brokers.all_topics(_REQUEST_S)
            missing = [topic for topic in topics if topic not in there]
            if not missing or pause is None:
                break
            time.sleep(pause)
    except NoAnswerError as error:
        raise RuntimeError(
            f"none of the brokers of kafka.bootstrap.servers = {client['bootstrap.servers']} "
            f"gives an answer: {error.args[0].str()}. Are they there, and are security.protocol "
            "and what goes with it right?"
        ) from None
    finally:
        brokers.close()
    return missing


def _are_made(missing: Iterable[str], client: ClientConfig) -> bool:
    """Whether brokers make the topics that are sent to; if they do not tell, it may be."""
    with AdminClient(dict(client)) as admin:
        broker = str(min(admin.list_topics(timeout=_REQUEST_S).brokers))
        resource = ConfigResource(ResourceType.BROKER, broker)
        try:
            (answer,) = admin.describe_configs([resource]).values()
            entry = answer.result(_REQUEST_S).get(_ON_DEMAND)
            if entry is None:  # not Apache Kafka
                return True
            return str(entry.value) == "true"
        except KafkaException as error:
            _log.warning(
                "topics that are not there: %s; whether brokers make them when records come is "
                "not to be had: %s",
                ", ".join(sorted(missing)),
                error,
            )
            return True
