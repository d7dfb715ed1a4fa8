"""Altered answers of a broker: errors of the clients, and never the end of the process."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest
from fixture_types import RunScript
from orders import PROTOCOLS
from relay import CorruptingRelay, serving
from repeated import SOAK

pytestmark = [pytest.mark.ours, pytest.mark.soak, pytest.mark.timeout(200)]

SECONDS = 10 if SOAK else 3
SEED = os.environ.get("CYKAFKA_TEST_SEED")

CLIENTS = """
import contextlib, json, sys, threading, time
import cykafka.admin as api

servers, topic, protocol, seconds = sys.argv[1:]
end = time.monotonic() + float(seconds)
config = {
    "bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "socket.timeout.ms": 1000,
    "topic.metadata.refresh.interval.ms": 200,
}
errors = (kafka.KafkaException, ValueError, RuntimeError, TimeoutError)

def produce(extra):
    while time.monotonic() < end:
        with kafka.Producer({**config, "message.timeout.ms": 2000, **extra}) as producer:
            for _ in range(100):
                with contextlib.suppress(*errors, BufferError):
                    producer.produce(topic, b"value", headers={"name": b"value"})
                producer.poll(0.01)
            producer.purge()

def consume():
    group = {
        "group.id": topic, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 50,
        "fetch.wait.max.ms": 20, **json.loads(protocol),
    }
    place = kafka.TopicPartition(topic, 0, 1000)
    while time.monotonic() < end:
        consumer = kafka.Consumer({**config, **group})
        consumer.subscribe([topic])
        for _ in range(20):
            for call in (
                lambda: consumer.consume(10, 0.1),
                lambda: consumer.get_watermark_offsets(place, 0.05),
                lambda: consumer.offsets_for_times([place], 0.05),
                lambda: consumer.committed([place], 0.05),
            ):
                with contextlib.suppress(*errors):
                    call()
        consumer.close(timeout=0.5)

def administrate():
    nobody = kafka.ConsumerGroupTopicPartitions(topic)
    rules = api.AclBindingFilter("any", None, "any", None, None, "any", "any")
    partition = kafka.TopicPartition(topic, 0)
    while time.monotonic() < end:
        with api.AdminClient(config) as admin:
            for call, *arguments in (
                (admin.describe_cluster,),
                (admin.list_consumer_groups,),
                (admin.describe_consumer_groups, [topic, topic + "-none"]),
                (admin.list_consumer_group_offsets, [nobody]),
                (admin.delete_consumer_groups, [topic + "-none"]),
                (admin.describe_topics, kafka.TopicCollection([topic, topic + "-none"])),
                (admin.delete_topics, [topic + "-none", topic + "-neither"]),
                (admin.describe_configs, [api.ConfigResource("topic", topic)]),
                (admin.list_offsets, {partition: api.OffsetSpec.latest()}),
                (admin.describe_acls, rules),
                (admin.describe_user_scram_credentials, ["nobody"]),
                (admin.elect_leaders, kafka.ElectionType.PREFERRED, [partition]),
            ):
                with contextlib.suppress(*errors):
                    asked = call(*arguments, request_timeout=0.3)
                    for future in asked.values() if isinstance(asked, dict) else [asked]:
                        future.exception(1)
            for call in (admin.list_topics, admin.list_groups):
                with contextlib.suppress(*errors):
                    call(timeout=0.1)

threads = [
    threading.Thread(target=administrate),
    threading.Thread(target=produce, args=({},)),
    threading.Thread(target=produce, args=({"enable.idempotence": True},)),
    threading.Thread(target=consume),
    threading.Thread(target=consume),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("ended")
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_corrupt_answers_do_not_end_the_process(
    run_script: RunScript, cluster: Any, topic: str, protocol: str
) -> None:
    seed = int(SEED) if SEED else random.SystemRandom().randrange(2**32)
    with serving(CorruptingRelay(cluster.bootstrap_servers, seed)) as relay:
        arguments = (relay.bootstrap_servers, topic, json.dumps(PROTOCOLS[protocol]), str(SECONDS))
        done = run_script(CLIENTS, *arguments, timeout=SECONDS + 120)
    assert (done.returncode, done.stdout) == (0, "ended\n"), (
        f"CYKAFKA_TEST_SEED={seed}\n{done.stderr}"
    )
