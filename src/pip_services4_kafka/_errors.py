"""Conversion of Kafka errors to the typed exceptions of pip-services."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from pip_services4_commons.errors import (
    ApplicationException,
    BadRequestException,
    ConfigException,
    ConflictException,
    ConnectionException,
    InvalidStateException,
    InvocationException,
    NotFoundException,
    UnauthorizedException,
    UnsupportedException,
)

from cykafka import Delivery, DeliveryError, KafkaError, KafkaException
from cykafka.internal import kafka_error
from pip_services4_kafka._context import AnyContext, get_trace_id


def words(text: str) -> tuple[str, ...]:
    """Split a text into words: a long list of names reads better as one text."""
    return tuple(text.split())


def codes(names: str) -> frozenset[int]:
    """Return the error codes for names that are separated by spaces."""
    return frozenset(getattr(KafkaError, name) for name in words(names))


_NAMES: dict[type[ApplicationException], str] = {
    UnauthorizedException: """
        _AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE
        TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED
        SECURITY_DISABLED
        """,
    ConnectionException: """
        _TRANSPORT _ALL_BROKERS_DOWN _RESOLVE _SSL _TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT
        _WAIT_COORD REQUEST_TIMED_OUT NETWORK_EXCEPTION BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE
        LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION COORDINATOR_NOT_AVAILABLE
        COORDINATOR_LOAD_IN_PROGRESS NOT_COORDINATOR NOT_CONTROLLER
        """,
    BadRequestException: """
        _INVALID_ARG _BAD_MSG MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_MSG INVALID_MSG_SIZE
        INVALID_RECORD INVALID_TIMESTAMP INVALID_REQUEST INVALID_CONFIG INVALID_PARTITIONS
        INVALID_REPLICATION_FACTOR INVALID_GROUP_ID INVALID_REQUIRED_ACKS POLICY_VIOLATION
        TOPIC_EXCEPTION OFFSET_OUT_OF_RANGE
        """,
    NotFoundException: """
        UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION _NOENT UNKNOWN_TOPIC_ID
        GROUP_ID_NOT_FOUND
        """,
    ConflictException: "TOPIC_ALREADY_EXISTS",
    InvalidStateException: "_STATE _DESTROY _CONFLICT",
    UnsupportedException: "UNSUPPORTED_VERSION _NOT_IMPLEMENTED",
}
_TYPE_OF = {code: kind for kind, names in _NAMES.items() for code in codes(names)}

# The brokers may have stored the message, and their response was lost.
_PERHAPS_STORED = codes("_MSG_TIMED_OUT _TIMED_OUT _TRANSPORT REQUEST_TIMED_OUT NETWORK_EXCEPTION")


def reason(error: BaseException | KafkaError) -> str:
    """The text of an error, without its code."""
    known = kafka_error(error)
    return known.str() if known is not None else str(error)


def convert(
    error: BaseException | KafkaError,
    doing: str,
    context: AnyContext = None,
    **details: Any,
) -> ApplicationException:
    """Convert a Kafka error to a typed exception.

    Parameters
    ----------
    error : KafkaException, KafkaError or another exception
        Becomes the cause. An ApplicationException is returned unchanged.
    doing : str
        The operation that failed. The exception's message starts with it.
    context : IContext or str, optional
    **details
        Details of the exception, such as ``topic``.

    Returns
    -------
    ApplicationException
        The Kafka error code selects the type. ``code`` is the name of that code without its
        leading underscore.
    """
    if isinstance(error, ApplicationException):
        return error
    cause = KafkaException(error) if isinstance(error, KafkaError) else error
    known = kafka_error(error)
    kind, code = InvocationException, "FAILED"
    if known is not None:
        kind, code = _kind_and_code(known)
    elif isinstance(error, RuntimeError):  # raised by a closed client
        kind, code = InvalidStateException, "NOT_OPEN"
    elif isinstance(error, (TypeError, ValueError)):
        kind, code = BadRequestException, "INVALID_MESSAGE"
    exception = kind(get_trace_id(context), code, f"{doing}: {reason(error)}")
    return set_cause(exception, cause, **details)


def _kind_and_code(error: KafkaError) -> tuple[type[ApplicationException], str]:
    return _TYPE_OF.get(error.code(), InvocationException), error.name().lstrip("_")


def set_cause(
    exception: ApplicationException, cause: BaseException, **details: Any
) -> ApplicationException:
    """Set an exception's details, and its cause for both pip-services and Python."""
    exception.with_cause(cause)
    exception.__cause__ = cause
    if (exception.stack_trace or "").startswith("NoneType"):
        # with_cause() formats the exception being handled. Without one it stores the text
        # "NoneType: None", and loggers would print it.
        exception.stack_trace = ""
    for key, value in details.items():
        if value is not None:
            exception.with_details(key, value)
    return exception


def convert_delivery(
    error: DeliveryError, topic: str, context: AnyContext = None
) -> ApplicationException:
    """Return the exception for a batch with records that the brokers may not have stored.

    The first failure sets its type and code. Its details are ``topic``, ``failed`` (a count),
    ``indices`` (positions in the batch, separated by commas) and ``perhaps_stored``: the indices
    of records that the brokers may have stored. The cause's ``failures`` maps indices to errors.
    """
    failures = error.failures
    index, first = next(iter(failures.items()))
    count = error.delivery.count if error.delivery is not None else len(failures)
    unknown = [index for index, failure in failures.items() if failure.code() in _PERHAPS_STORED]
    outcome, hint = "not stored", ""
    if unknown:
        every = len(unknown) == len(failures)
        outcome = "perhaps not stored" if every else "not, or perhaps not, stored"
        hint = "; the brokers may have stored a message, because their response did not arrive"
    text = f"topic {topic}: {len(failures)} of {count} messages were {outcome}, message {index}"
    kind, code = _kind_and_code(first)
    exception = kind(get_trace_id(context), code, f"{text}: {first.str()}{hint}")
    return set_cause(exception, error, topic=topic, **_failed(failures, unknown))


def _failed(indices: Collection[int], unknown: Iterable[int]) -> dict[str, Any]:
    """Return the details of a batch with failed messages, some of which may be stored."""
    return {
        "failed": len(indices),
        "indices": ",".join(map(str, indices)),
        "perhaps_stored": ",".join(map(str, unknown)) or None,
    }


def deliver(
    publish: Callable[[], Delivery], topic: str, timeout: float, context: AnyContext = None
) -> None:
    """Call `publish`, wait for the outcome of its messages, and convert errors."""
    deadline = time.monotonic() + timeout
    delivery: Delivery | None = None
    try:
        delivery = publish()
        delivery.wait(max(0.0, deadline - time.monotonic()))
    except DeliveryError as error:
        raise convert_delivery(error, topic, context) from error
    except TimeoutError as error:
        raise _convert_timeout(error, topic, timeout, delivery, context) from error
    except (KafkaException, RuntimeError, TypeError, ValueError) as error:
        raise convert(error, f"topic {topic}: send failed", context, topic=topic) from error


def _convert_timeout(
    error: TimeoutError, topic: str, timeout: float, sent: Delivery | None, context: AnyContext
) -> ApplicationException:
    """Return the exception for a batch that timed out before all records had an outcome."""
    text = (
        f"topic {topic}: timed out before all messages had an outcome (options.request_timeout: "
        f"{timeout:g} s); the brokers may or may not have stored them"
    )
    exception = ConnectionException(get_trace_id(context), "REQUEST_TIMED_OUT", text)
    details: dict[str, Any] = {}
    if sent is not None:
        failures = sent.errors
        indices = [index for index, offset in enumerate(sent.offsets) if offset < 0]
        unknown = [
            index
            for index in indices
            if index not in failures or failures[index].code() in _PERHAPS_STORED
        ]
        details = _failed(indices, unknown)
        # Reads the failures: otherwise the producer logs them.
        sent.add_done_callback(lambda ended: ended.errors)
    return set_cause(exception, error, topic=topic, **details)


def describe(error: BaseException) -> str:
    """Describe an application's exception by its type and text."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # raised by its __str__
        return type(error).__name__


def config_error(
    code: str, message: str, context: AnyContext = None, keys: Iterable[str] = ()
) -> ConfigException:
    """Return a ConfigException. ``keys`` are the configuration keys at fault."""
    exception = ConfigException(get_trace_id(context), code, message)
    named = ",".join(keys)
    return exception.with_details("keys", named) if named else exception
