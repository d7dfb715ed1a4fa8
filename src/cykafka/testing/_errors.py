"""What the cluster of real brokers raises."""

from __future__ import annotations


class KafkaClusterError(RuntimeError):
    """A cluster of real brokers cannot be started or controlled; the message says what to do."""


class NoBrokerError(KafkaClusterError):
    """This machine has nothing to start a broker with; the message says what to install."""
