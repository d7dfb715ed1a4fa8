"""Checks, before a job sends records, that its topics exist and accept the records.

Otherwise a missing dead letter topic would show only at the first bad record, maybe days later,
and a missing partition only after the job has sent other records.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Literal

from cykafka import KafkaError, KafkaException, Producer
from cykafka.admin import AdminClient, ConfigResource, ResourceType
from cykafka.spark.clients.consumers import GONE, NoAnswerError, OpenConsumer, consumer_config
from cykafka.spark.clients.properties import ClientConfig, client_config
from cykafka.spark.jobs.config.models import JobConfig, Mirror, Replay, TopicKeys
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.source.planner import Planner
from cykafka.spark.source.read_options import ReadOptions

__all__ = ["check_partitions", "check_topics", "planner_of"]

_TARGETS = ("to", "dead_letter_topic", "parking_topic")
_REQUEST_S = 60.0
# Pauses between attempts: a broker that has just started does not know the topics yet.
_PAUSES_S = (0.5, 1.0)
# Further pauses: a topic that brokers create on demand takes a moment.
_NEW_PAUSES_S = (1.0, 2.0, 5.0)
_COMING = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_ID)
_ON_DEMAND = "auto.create.topics.enable"
# The topic limits for records. The last two are for timestamps.
_LIMITS = (
    "max.message.bytes",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
)
_MOST = 2**63 - 1

_log = logging.getLogger("cykafka.spark")


def check_topics(config: JobConfig) -> None:
    """Request from the brokers the topics that the configuration names.

    Topics to read may be missing with ``source.failOnDataLoss = false``. Topics to write may be
    missing if brokers create topics on demand, and in a dry run.

    Raises
    ------
    ConfigError
        Topics are missing.
    RuntimeError
        No broker responds.
    """
    problems = [*_source_problems(config), *_target_problems(config)]
    if problems:
        raise ConfigError(*problems)
    if isinstance(config, Mirror) and config.to is not None:
        if config.keep_partitions:
            check_partitions(config, {config.to: _largest_partition_count(config)})
        _compare_limits(config, config.to)


def check_partitions(config: Mirror | Replay, wanted: Mapping[str, int]) -> None:
    """Check that topics to write have the partitions that records go to.

    Parameters
    ----------
    config : Mirror or Replay
    wanted : mapping of str to int
        How many partitions each topic needs.

    Raises
    ------
    ConfigError
        A topic does not exist and brokers do not create it, or it has fewer partitions.
    RuntimeError
        No broker responds.
    """
    client = _client(config.sink_options(), "sink")
    try:
        with Producer(dict(client)) as producer:
            there = _counts(producer, wanted, not config.dry_run)
    except KafkaException as error:
        raise _no_answer(client, error) from None
    missing = [name for name, count in there.items() if count == 0]
    if missing:  # a dry run creates no topic
        count = _new_partitions(missing, _client(config.sink_options(), "admin"))
        there |= dict.fromkeys(missing, count)
    problems = []
    for name, count in there.items():
        if count == 0:
            problems.append(
                f"topic {name!r} does not exist, or this user may not see it; create it"
            )
        elif count is not None and count < wanted[name]:
            problems.append(
                f'key "keep_partitions": topic {name!r} has {count} partition(s), and records go '
                f"to partition {wanted[name] - 1}: add partitions, or set keep_partitions = false "
                "(--no-keep-partitions)"
            )
    if problems:
        raise ConfigError(*problems)


def _counts(producer: Producer, names: Iterable[str], may_create: bool) -> dict[str, int | None]:
    """Return partition counts by topic; 0: the topic does not exist; None: unknown.

    With `may_create`, brokers that create topics on demand create them.
    """
    found: dict[str, int | None] = dict.fromkeys(names, 0)
    for pause in (*_PAUSES_S, *_NEW_PAUSES_S, None):
        there = {} if may_create else producer.list_topics(None, _REQUEST_S).topics
        for name in [name for name, count in found.items() if count == 0]:
            if may_create:  # a request for one topic creates it
                there = producer.list_topics(name, _REQUEST_S).topics
            topic = there.get(name)
            error = None if topic is None else topic.error
            if topic is not None and topic.partitions:
                found[name] = len(topic.partitions)
            elif error is not None and error.code() not in (*GONE, *_COMING):
                found[name] = None  # the sink reports it
        if pause is None or 0 not in found.values():
            break
        time.sleep(pause)  # once for all topics
    return found


def _new_partitions(names: Iterable[str], client: ClientConfig) -> int | None:
    """Return the partition count for a new topic; 0 if brokers do not create topics; None if they
    do not report it."""
    configs = _broker_configs(names, client)
    if configs is None:
        return None
    if configs.get(_ON_DEMAND, "true") != "true":  # none: not Apache Kafka
        return 0
    count = configs.get("num.partitions")
    return None if count is None else int(count)


@contextmanager
def planner_of(config: JobConfig, mode: Literal["batch", "stream"]) -> Iterator[Planner]:
    """Open a planner for the topics that a job reads."""
    with warnings.catch_warnings(action="ignore"):  # the source emits the same warnings
        options = ReadOptions.of(config.source_options(), mode)
    with closing(Planner(options)) as planner:
        yield planner


def _largest_partition_count(config: Mirror) -> int:
    """Return the largest partition count of the topics."""
    with planner_of(config, "stream") as planner:
        return max((partition for _, partition in planner.partitions()), default=-1) + 1


def _compare_limits(config: Mirror, to: str) -> None:
    """Warn if a target topic's limits are tighter than those of a topic that the job reads."""
    names = _LIMITS if config.keep_timestamps else _LIMITS[:1]
    target = _limits([to], _client(config.sink_options(), "admin")).get(to)
    if not target or not config.topics:
        return
    sources = _limits(config.topics, _client(config.source_options(), "admin"))
    for topic, source in sources.items():
        for name in names:
            if target.get(name, _MOST) < source.get(name, 0):
                _log.warning(
                    "topic %s has %s = %d, and topic %s has %d: brokers may refuse records",
                    to, name, target[name], topic, source[name],
                )  # fmt: skip


def _limits(topics: Iterable[str], client: ClientConfig) -> dict[str, dict[str, int]]:
    """Return the limits of topics whose configuration the user may see."""
    found = {}
    with AdminClient(dict(client)) as admin:
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        for resource, answer in admin.describe_configs(asked).items():
            with suppress(KafkaException):
                configs = answer.result(_REQUEST_S)
                values = {name: configs[name].value for name in _LIMITS if name in configs}
                found[resource.name] = {name: int(values[name] or 0) for name in values}
    return found


def _source_problems(config: JobConfig) -> list[str]:
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


def _target_problems(config: JobConfig) -> list[str]:
    wanted = {name: topic for name in _TARGETS if (topic := getattr(config, name, None))}
    if not wanted or config.is_dry_run:
        return []
    client = _client(config.sink_options(), "admin")
    missing = _missing(wanted.values(), client)
    if not missing or _new_partitions(missing, client) != 0:
        return []
    return [
        f'key "{name}" = {topic!r}: the topic does not exist, or this user may not see it; '
        "create it"
        for name, topic in wanted.items()
        if topic in missing
    ]


def _client(options: Mapping[str, str], role: Literal["source", "sink", "admin"]) -> ClientConfig:
    # The source and the sink emit the same warnings.
    with warnings.catch_warnings(action="ignore"):
        return client_config(options, role=role)


def _missing(topics: Iterable[str], client: ClientConfig) -> list[str]:
    """Return the topics that do not exist, or that the user may not see."""
    brokers = OpenConsumer(consumer_config(client, "cykafka-topic-check"))  # never joins the group
    try:
        for pause in (*_PAUSES_S, None):
            # Request all topics: a request for one topic may create it.
            there = brokers.all_topics(_REQUEST_S)
            missing = [topic for topic in topics if topic not in there]
            if not missing or pause is None:
                break
            time.sleep(pause)
    except NoAnswerError as error:
        raise _no_answer(client, error) from None
    finally:
        brokers.close()
    return missing


def _no_answer(client: ClientConfig, error: KafkaException) -> RuntimeError:
    return RuntimeError(
        f"no broker of kafka.bootstrap.servers = {client['bootstrap.servers']} responds: "
        f"{error.args[0].str()}. Check that the brokers are up, and that security.protocol "
        "and the sasl.* and ssl.* properties match them"
    )


def _broker_configs(missing: Iterable[str], client: ClientConfig) -> dict[str, str | None] | None:
    """Return a broker's configuration, or None if the user may not see it."""
    with AdminClient(dict(client)) as admin:
        broker = str(min(admin.list_topics(timeout=_REQUEST_S).brokers))
        resource = ConfigResource(ResourceType.BROKER, broker)
        try:
            (answer,) = admin.describe_configs([resource]).values()
            return {name: entry.value for name, entry in answer.result(_REQUEST_S).items()}
        except KafkaException as error:
            _log.warning(
                "topics that do not exist: %s; cannot find out whether brokers create them on "
                "demand: %s",
                ", ".join(sorted(missing)),
                error,
            )
            return None
