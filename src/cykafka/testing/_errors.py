"""Errors of clusters of real brokers."""

from __future__ import annotations

from cykafka._core.common.naming import public


@public("cykafka.testing")
class KafkaClusterError(RuntimeError):
    """A cluster of real brokers cannot be started or controlled; the message says what to do."""


@public("cykafka.testing")
class NoBrokerError(KafkaClusterError):
    """This machine cannot run a broker; the message says what to install."""
