"""OpenTelemetry spans for producers and consumers, with their context in record headers.

.. code-block:: python

    from cykafka import Consumer, Producer
    from cykafka.otel import TracedConsumer, TracedProducer

    producer = TracedProducer(Producer(config))
    producer.produce("orders", "order 1")  # span "send orders"

    consumer = TracedConsumer(Consumer(config))
    consumer.subscribe(["orders"])
    message = consumer.poll(1.0)  # span "poll orders", with a link to "send orders"
    with consumer.processing(message):  # span "process orders"
        ...

The spans follow OpenTelemetry's semantic conventions for Kafka. The propagator of
``opentelemetry.propagate`` chooses the headers; by default ``traceparent`` and ``tracestate`` of
W3C Trace Context, and ``baggage``. Clients that are not wrapped cost nothing.

The module needs the extra ``otel``: ``pip install 'cykafka[otel]'``.
"""

try:
    import opentelemetry.trace  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: pip install 'cykafka[otel]'") from error

from cykafka.otel._consumer import TracedConsumer
from cykafka.otel._producer import TracedProducer

__all__ = ["TracedConsumer", "TracedProducer"]
