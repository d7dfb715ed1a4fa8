"""Kafka's own command line tools."""

from __future__ import annotations

import subprocess

from cykafka.testing._artifacts import KAFKA, classpath, java
from cykafka.testing._classes import archived_classes
from cykafka.testing._errors import KafkaClusterError

# For a fast start: compile early rather than well. Write no shared files.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
)
TIMEOUT_S = 120.0
# Kafka's scripts (without .sh) -> their main classes.
_TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


def run_tool(
    name: str, *args: str, timeout: float = TIMEOUT_S, process_group: int | None = None
) -> str:
    """Run one of Kafka's tools and return its output.

    Parameters
    ----------
    name : str
        Kafka's name of its script, or a Java class.
    *args : str
        Its arguments.
    timeout : float, default 120.0
        Longest run in s.
    process_group : int, optional
        The group that the tool joins; it ends with the group.

    Raises
    ------
    KafkaClusterError
        If it fails; the message has its output.
    """
    if "." not in name and name not in _TOOLS:
        raise ValueError(f"name must be a Java class or one of {', '.join(_TOOLS)}, not {name!r}")
    main = _TOOLS.get(name, name)
    program = java()
    classes = archived_classes(program, KAFKA.fetch())
    try:
        done = subprocess.run(
            [program, *JAVA_OPTIONS, *classes, "-Xmx128m", "-cp", classpath(), main, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            process_group=process_group,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise KafkaClusterError(f"{name} timed out after {timeout:g} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()) or "it printed nothing"
        raise KafkaClusterError(f"{name} failed with status {done.returncode}: {said}")
    return done.stdout
