"""librdkafka's statistics as typed objects, and as Prometheus metrics.

librdkafka passes the statistics as JSON to ``stats_cb``, every ``statistics.interval.ms``.
:func:`parse` returns them as :class:`Statistics`; :mod:`cykafka.stats.prometheus` exports them.
Attributes that end in ``_us``, ``_ms`` or ``_s`` are microseconds, milliseconds or seconds; sizes
are bytes.

The module needs the ``metrics`` extra: ``pip install 'cykafka[metrics]'``.
"""

from cykafka.stats._model import (
    Broker,
    BrokerPartition,
    ConsumerGroup,
    FatalError,
    Partition,
    ProducerId,
    Statistics,
    Topic,
    Window,
    parse,
)

__all__ = [
    "Broker",
    "BrokerPartition",
    "ConsumerGroup",
    "FatalError",
    "Partition",
    "ProducerId",
    "Statistics",
    "Topic",
    "Window",
    "parse",
]
