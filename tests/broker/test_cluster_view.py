"""What clients report about the cluster and themselves: metadata, cluster id, statistics."""

from __future__ import annotations

import json
from typing import Any

from fixture_types import Fill, MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S


class Statistics(list[dict[str, Any]]):
    """A statistics callback that keeps the statistics it got."""

    def __call__(self, text: str) -> None:
        self.append(json.loads(text))

    @property
    def config(self) -> dict[str, Any]:
        return {"statistics.interval.ms": 50, "stats_cb": self}


def addresses(cluster: Any) -> set[str]:
    return set(cluster.bootstrap_servers.split(","))


def test_list_topics_returns_brokers_and_partitions(
    producer: Any, cluster: Any, topic: str
) -> None:
    metadata = producer.list_topics(timeout=WAIT_S)

    assert {f"{b.host}:{b.port}" for b in metadata.brokers.values()} == addresses(cluster)
    assert metadata.controller_id in metadata.brokers
    assert metadata.orig_broker_name.split("/")[0] in addresses(cluster)
    described = metadata.topics[topic]
    assert described.error is None
    assert sorted(described.partitions) == [0, 1, 2, 3]
    for partition in described.partitions.values():
        assert partition.error is None
        assert partition.leader in metadata.brokers
        assert list(partition.replicas) == list(partition.isrs) == [partition.leader]


def test_list_topics_of_one_topic_leaves_out_the_others(
    consumer: Any, cluster: Any, topic: str, unique: Unique
) -> None:
    cluster.create_topic(unique("other"), 1)

    assert list(consumer.list_topics(topic, WAIT_S).topics) == [topic]


def test_list_topics_of_a_missing_topic_names_the_error(
    consumer: Any, kafka: Any, unique: Unique
) -> None:
    name = unique("missing")

    for _ in range(2):  # the request creates no topic
        described = consumer.list_topics(name, WAIT_S).topics[name]
        assert described.error == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
        assert described.partitions == {}


def test_list_topics_by_a_producer_creates_the_topic(
    producer: Any, consumer: Any, unique: Unique, wait_until: WaitUntil
) -> None:
    name = unique("asked-for")

    wait_until(lambda: producer.list_topics(name, WAIT_S).topics[name].error is None, lambda: None)

    assert consumer.list_topics(name, WAIT_S).topics[name].partitions


def test_cluster_id_is_the_same_for_every_client(producer: Any, consumer: Any) -> None:
    name = producer.cluster_id(timeout=WAIT_S)

    assert len(name) == 22  # Kafka's identifiers are UUIDs in base 64
    assert consumer.cluster_id(timeout=WAIT_S) == name
    assert consumer.list_topics(timeout=WAIT_S).cluster_id == name


def test_statistics_of_a_producer_count_its_messages(
    make_producer: MakeProducer, cluster: Any, topic: str, wait_until: WaitUntil
) -> None:
    statistics = Statistics()
    producer = make_producer({**statistics.config, "client.id": "counted", "linger.ms": 20})
    for number in range(300):
        producer.produce(topic, b"value", key=b"key", partition=number % 3)
    assert producer.flush(WAIT_S) == 0
    statistics.clear()

    wait_until(lambda: statistics, lambda: producer.poll(0.1))

    found = statistics[-1]
    assert (found["type"], found["client_id"]) == ("producer", "counted")
    assert (found["txmsgs"], found["txmsg_bytes"]) == (300, 300 * len("keyvalue"))
    assert (found["msg_cnt"], found["msg_size"]) == (0, 0)
    partitions = found["topics"][topic]["partitions"]
    sent = {number: partitions[number]["txmsgs"] for number in partitions if int(number) >= 0}
    assert sent == {"0": 100, "1": 100, "2": 100, "3": 0}
    assert found["topics"][topic]["batchcnt"]["max"] <= 100
    leaders = {partition["leader"] for partition in partitions.values()} - {-1}
    names = {broker["nodename"]: broker for broker in found["brokers"].values()}
    assert all(broker["nodeid"] in leaders for broker in names.values() if broker["tx"] > 100)
    assert addresses(cluster) <= set(names)


def test_statistics_of_a_producer_count_the_queued_messages(
    make_producer: MakeProducer, topic: str, wait_until: WaitUntil
) -> None:
    statistics = Statistics()
    producer = make_producer({**statistics.config, "linger.ms": 60_000})
    for _ in range(7):
        producer.produce(topic, b"value")

    wait_until(lambda: statistics and statistics[-1]["msg_cnt"] == 7, lambda: producer.poll(0.1))

    assert statistics[-1]["msg_size"] == 7 * len("value")
    assert statistics[-1]["txmsgs"] == 0


def test_statistics_of_a_consumer_have_offsets_and_lag(
    make_consumer: MakeConsumer, kafka: Any, topic: str, fill: Fill, wait_until: WaitUntil
) -> None:
    fill(topic, 10)
    statistics = Statistics()
    consumer = make_consumer({**statistics.config, "enable.auto.offset.store": False})
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    message = consumer.consume(7, WAIT_S)[3]
    consumer.store_offsets(message=message)
    consumer.commit(asynchronous=False)

    def partition() -> dict[str, Any]:
        found: dict[str, Any] = statistics[-1]["topics"][topic]["partitions"]["0"]
        return found

    wait_until(
        lambda: (
            statistics
            and statistics[-1].get("topics")
            and partition()["committed_offset"] == 4
            and partition()["consumer_lag"] == 6
        ),
        lambda: consumer.poll(0.05),
    )

    values = partition()
    assert (values["hi_offset"], values["ls_offset"]) == (10, 10)
    assert (values["stored_offset"], values["rxmsgs"]) == (4, 10)
    assert values["fetch_state"] == "active"
    assert statistics[-1]["type"] == "consumer"


def test_statistics_of_a_member_have_its_group_state(
    make_consumer: MakeConsumer, topic: str, fill: Fill, wait_until: WaitUntil
) -> None:
    fill(topic, 1)
    statistics = Statistics()
    consumer = make_consumer({**statistics.config, "group.protocol": "consumer"})
    consumer.subscribe([topic])
    wait_until(lambda: len(consumer.assignment()) == 4, lambda: consumer.poll(0.1))
    statistics.clear()

    wait_until(lambda: statistics, lambda: consumer.poll(0.1))

    group = statistics[-1]["cgrp"]
    assert (group["state"], group["join_state"]) == ("up", "steady")
    assert (group["assignment_size"], group["rebalance_cnt"]) == (4, 1)
