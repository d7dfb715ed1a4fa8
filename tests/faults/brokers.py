"""Makes the nodes of a cluster fail."""

from __future__ import annotations

import random
import re
import time
from contextlib import suppress

from machine import WAIT_S

from cykafka import KafkaException
from cykafka.admin import AdminClient
from cykafka.testing import KafkaCluster
from cykafka.testing.kafka import KafkaNode

__all__ = ["Brokers"]

_FAULTS = ("kill", "halt", "restart", "kill two", "kill all")
_ROLES = ("leader", "coordinator", "controller")


class Brokers:
    """The nodes of a cluster.

    Parameters
    ----------
    cluster : KafkaCluster
    topic : str
        Whose leaders fail.
    group : str
        Whose coordinator fails.
    dice : random.Random
    """

    def __init__(self, cluster: KafkaCluster, topic: str, group: str, dice: random.Random) -> None:
        self._cluster, self._topic, self._group, self._dice = cluster, topic, group, dice
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def close(self) -> None:
        self._admin.close()

    def fail(self) -> str:
        """Let nodes fail in a random way, wait until all is in sync, and say what failed."""
        fault, role = self._dice.choices(_FAULTS, (4, 4, 2, 1, 1))[0], self._dice.choice(_ROLES)
        node = self._node(role)
        others = [other for other in self._cluster.nodes if other is not node]
        killed = {"kill": [node], "kill two": [node, others[0]], "kill all": [node, *others]}
        if fault == "halt":  # also for longer than the cluster needs to notice it
            node.pause()
            time.sleep(self._dice.uniform(0.5, 6))
            node.resume()
        elif fault == "restart":
            node.restart()
        else:
            for item in killed[fault]:
                item.kill()
            time.sleep(self._dice.uniform(0, 3))
            for item in killed[fault]:
                item.start(wait=False)
            for item in killed[fault]:
                item.wait_ready()
        self.wait_until_in_sync()
        return f"{fault}: the {role}, node {node.id}"

    def wait_until_in_sync(self) -> None:
        """Wait until all replicas of all partitions are in sync."""
        deadline = time.monotonic() + 2 * WAIT_S
        behind = ["all"]
        while behind:
            assert time.monotonic() < deadline, f"not in sync: {behind}"
            with suppress(KafkaException):
                behind = self._behind()
            time.sleep(0.1)

    def _behind(self) -> list[str]:
        topics = self._admin.list_topics(timeout=WAIT_S).topics
        return [
            f"{topic.topic} [{part.id}]"
            for topic in topics.values()
            for part in topic.partitions.values()
            if len(part.isrs) < len(part.replicas) or part.leader < 0
        ]

    def _node(self, role: str) -> KafkaNode:
        deadline = time.monotonic() + WAIT_S
        while True:
            with suppress(KafkaException):
                number = self._number(role)
                if found := [node for node in self._cluster.nodes if node.id == number]:
                    return found[0]
            assert time.monotonic() < deadline, f"there is no {role}"
            time.sleep(0.1)

    def _number(self, role: str) -> int:
        if role == "leader":
            topic = self._admin.list_topics(self._topic, WAIT_S).topics[self._topic]
            return self._dice.choice([*topic.partitions.values()]).leader
        if role == "coordinator":
            described = self._admin.describe_consumer_groups([self._group])[self._group]
            node = described.result(WAIT_S).coordinator
            return -1 if node is None else node.id
        status = self._cluster.tool("kafka-metadata-quorum", "describe", "--status")
        return int(re.findall(r"LeaderId:\s+(\d+)", status)[0])
