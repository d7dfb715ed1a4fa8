"""Errors of clusters of real brokers."""

from __future__ import annotations


class KafkaClusterError(RuntimeError):
    """A cluster of real brokers cannot be started or controlled; the message says what to do."""


class NoBrokerError(KafkaClusterError):
    """This machine cannot run a broker; the message says what to install."""
