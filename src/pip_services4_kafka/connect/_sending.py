"""Sending of batches and waiting for their outcome. Times are in s; errors are typed."""

from __future__ import annotations

import time
from typing import Any

from pip_services4_commons.errors import ConnectionException

from cykafka import Delivery, DeliveryError, KafkaException, Producer
from pip_services4_kafka._context import AnyContext, trace_id_of
from pip_services4_kafka._errors import typed, undelivered, with_cause

# librdkafka looks for timed-out messages about once a second, and then reports them.
_REPORT_DELAY_MS = 2500


def message_timeout(request_timeout: int) -> int:
    """How long librdkafka may try to send a message, ms.

    The outcome is then known within `request_timeout`, ms. At least half of that is for sending.
    """
    return request_timeout - min(_REPORT_DELAY_MS, request_timeout // 2)


def send(producer: Producer, topic: str, columns: dict[str, Any], timeout: float) -> Delivery:
    """Hand the columns of a batch to the producer."""
    try:
        return producer.publish(topic, timeout=timeout, **columns)
    except (KafkaException, RuntimeError, TypeError, ValueError) as error:
        raise typed(error, f"topic {topic}: publish failed", topic=topic) from error


def settle(
    delivery: Delivery, topic: str, began: float, timeout: float, context: AnyContext = None
) -> None:
    """Wait for the outcome of every message, at most `timeout` after `began` (monotonic).

    Raises
    ------
    ApplicationException
        Messages were not stored, or their outcome was not known in time.
    """
    try:
        delivery.wait(max(0.0, began + timeout - time.monotonic()))
    except DeliveryError as error:
        raise undelivered(error, topic, context) from error
    except TimeoutError as error:
        told = (
            f"topic {topic}: no outcome within options.request_timeout ({timeout} s); "
            "messages may be stored or not"
        )
        exception = ConnectionException(trace_id_of(context), "REQUEST_TIMED_OUT", told)
        raise with_cause(exception, error, topic=topic) from error
    except RuntimeError as error:
        raise typed(error, f"topic {topic}: publish failed", context, topic=topic) from error
