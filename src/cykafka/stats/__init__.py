"""librdkafka's statistics as typed objects, and as Prometheus metrics.

``stats_cb`` gets the statistics as JSON, every ``statistics.interval.ms``. :func:`parse` makes a
:class:`Statistics` of them; :mod:`cykafka.stats.prometheus` exports them. Attributes that end in
``_us``, ``_ms`` or ``_s`` are microseconds, milliseconds or seconds; sizes are bytes.

The module needs the extra ``metrics``: ``pip install 'cykafka[metrics]'``.
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
