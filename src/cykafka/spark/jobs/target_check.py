"""Whether the topics that a job sends to are there, asked before Spark starts.

A dead letter topic that is missing would else be noticed at the first bad record, days later.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from cykafka.spark.jobs.config import ConfigError

if TYPE_CHECKING:
    from cykafka.admin import AdminClient
    from cykafka.spark.jobs.config import Config

__all__ = ["check_targets"]

_KEYS = ("to", "dead_letter_topic", "parking_topic")
_REQUEST_S = 60.0
_ON_DEMAND = "auto.create.topics.enable"

_log = logging.getLogger("cykafka.spark")


def check_targets(config: Config) -> None:
    """Ask the brokers for the topics that the configuration names; a dry run needs none.

    Raises
    ------
    ConfigError
        Some are not there, and the brokers do not make topics that are sent to.
    KafkaException
        No broker answers.
    """
    from cykafka import KafkaError, KafkaException
    from cykafka.admin import AdminClient
    from cykafka.spark.client import client_config

    wanted = {name: config.values[name] for name in _KEYS if config.values.get(name)}
    if not wanted or config.values.get("dry_run"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sink says it, too
        options = dict(client_config(config.sink_options(), role="admin"))
    with AdminClient(options) as client:
        # All of them: whoever asks for one topic may have it made.
        try:
            there = client.list_topics(timeout=_REQUEST_S).topics
        except KafkaException as error:
            told = error.args[0]
            if told.code() != KafkaError._TRANSPORT:
                raise
            servers = config.sink_options()["kafka.bootstrap.servers"]
            raise KafkaException(
                KafkaError(
                    told.code(),
                    f"none of the brokers of kafka.bootstrap.servers = {servers} has answered for "
                    f"{_REQUEST_S:.0f} s: are they there, and are security.protocol and what goes "
                    "with it right?",
                )
            ) from error
        missing = {name: topic for name, topic in wanted.items() if topic not in there}
        if not missing or _makes_topics(client, missing):
            return
    raise ConfigError(
        [
            f'key "{name}" = {topic!r}: there is no such topic, or this user may not know of it; '
            "create it"
            for name, topic in missing.items()
        ]
    )


def _makes_topics(client: AdminClient, missing: dict[str, str]) -> bool:
    """Whether brokers make the topics that are sent to; if they do not tell, it may be."""
    from cykafka import KafkaException
    from cykafka.admin import ConfigResource, ResourceType

    broker = str(min(client.list_topics(timeout=_REQUEST_S).brokers))
    resource = ConfigResource(ResourceType.BROKER, broker)
    try:
        (answer,) = client.describe_configs([resource]).values()
        entry = answer.result(_REQUEST_S).get(_ON_DEMAND)
        if entry is None:  # not Apache Kafka
            return True
        return str(entry.value) == "true"
    except KafkaException as error:
        _log.warning(
            "topics that are not there: %s; whether brokers make them when records come is not to "
            "be had: %s",
            ", ".join(sorted(missing.values())),
            error,
        )
        return True
