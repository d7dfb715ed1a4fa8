"""Conversion of Kafka errors to the typed exceptions of pip-services."""

from __future__ import annotations

from collections.abc import Iterable
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

from cykafka import DeliveryError, KafkaError, KafkaException
from pip_services4_kafka._context import AnyContext, trace_id_of


def _codes(*names: str) -> frozenset[int]:
    return frozenset(getattr(KafkaError, name) for name in names)


_TYPES: tuple[tuple[type[ApplicationException], frozenset[int]], ...] = (
    (
        UnauthorizedException,
        _codes(
            "_AUTHENTICATION",
            "SASL_AUTHENTICATION_FAILED",
            "UNSUPPORTED_SASL_MECHANISM",
            "ILLEGAL_SASL_STATE",
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
            "CLUSTER_AUTHORIZATION_FAILED",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
            "SECURITY_DISABLED",
        ),
    ),
    (
        ConnectionException,
        _codes(
            "_TRANSPORT",
            "_ALL_BROKERS_DOWN",
            "_RESOLVE",
            "_SSL",
            "_TIMED_OUT",
            "_TIMED_OUT_QUEUE",
            "_MSG_TIMED_OUT",
            "_WAIT_COORD",
            "REQUEST_TIMED_OUT",
            "NETWORK_EXCEPTION",
            "BROKER_NOT_AVAILABLE",
            "REPLICA_NOT_AVAILABLE",
            "LEADER_NOT_AVAILABLE",
            "NOT_LEADER_FOR_PARTITION",
            "COORDINATOR_NOT_AVAILABLE",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "NOT_COORDINATOR",
            "NOT_CONTROLLER",
        ),
    ),
    (
        BadRequestException,
        _codes(
            "_INVALID_ARG",
            "_UNKNOWN_PARTITION",
            "_BAD_MSG",
            "MSG_SIZE_TOO_LARGE",
            "RECORD_LIST_TOO_LARGE",
            "INVALID_MSG",
            "INVALID_MSG_SIZE",
            "INVALID_RECORD",
            "INVALID_TIMESTAMP",
            "INVALID_REQUEST",
            "INVALID_CONFIG",
            "INVALID_PARTITIONS",
            "INVALID_REPLICATION_FACTOR",
            "INVALID_GROUP_ID",
            "INVALID_REQUIRED_ACKS",
            "POLICY_VIOLATION",
            "TOPIC_EXCEPTION",
            "OFFSET_OUT_OF_RANGE",
        ),
    ),
    (
        NotFoundException,
        _codes(
            "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID", "GROUP_ID_NOT_FOUND"
        ),
    ),
    (ConflictException, _codes("TOPIC_ALREADY_EXISTS")),
    (InvalidStateException, _codes("_STATE", "_DESTROY", "_CONFLICT")),
    (UnsupportedException, _codes("UNSUPPORTED_VERSION", "_NOT_IMPLEMENTED")),
)

_TYPE_OF = {code: kind for kind, codes in _TYPES for code in codes}


def kafka_error(error: BaseException | KafkaError) -> KafkaError | None:
    """The KafkaError inside a cykafka exception, or None."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


def typed(
    error: BaseException | KafkaError,
    doing: str,
    context: AnyContext = None,
    **details: Any,
) -> ApplicationException:
    """Make the typed exception for a Kafka error.

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
    exception: ApplicationException
    if known is not None:
        kind = _TYPE_OF.get(known.code(), InvocationException)
        exception = kind(trace_id_of(context), known.name().lstrip("_"), f"{doing}: {known.str()}")
    elif isinstance(error, RuntimeError):  # raised by a closed client
        exception = InvalidStateException(trace_id_of(context), "NOT_OPEN", f"{doing}: {error}")
    elif isinstance(error, (TypeError, ValueError)):
        exception = BadRequestException(
            trace_id_of(context), "INVALID_MESSAGE", f"{doing}: {error}"
        )
    else:
        exception = InvocationException(trace_id_of(context), "FAILED", f"{doing}: {error}")
    return with_cause(exception, cause, **details)


def with_cause(
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


def undelivered(
    error: DeliveryError, topic: str, context: AnyContext = None
) -> ApplicationException:
    """Make the exception for a batch with records that were not stored.

    The first failure sets its type and code. Details: ``topic``, ``failed`` (a count) and
    ``indices`` (positions in the batch, separated by commas). The cause's ``failures`` has the
    KafkaError of each record.
    """
    failures = error.failures
    first = next(iter(failures.values()), kafka_error(error))
    count = error.delivery.count if error.delivery is not None else len(failures)
    known = first or KafkaError(KafkaError._FAIL)
    kind = _TYPE_OF.get(known.code(), InvocationException)
    told = (
        f"topic {topic}: {len(failures)} of {count} messages were not stored, "
        f"message {next(iter(failures), 0)}: {known.str()}"
    )
    exception = kind(trace_id_of(context), known.name().lstrip("_"), told)
    return with_cause(
        exception,
        error,
        topic=topic,
        failed=len(failures),
        indices=",".join(map(str, failures)),
    )


def not_opened(name: str, context: AnyContext = None) -> InvalidStateException:
    """Make the exception for a call that needs an open queue."""
    told = f"Queue {name} is not opened: call open() first"
    return InvalidStateException(trace_id_of(context), "NOT_OPENED", told)


def misconfigured(
    code: str, message: str, context: AnyContext = None, keys: Iterable[str] = ()
) -> ConfigException:
    """Make a ConfigException. ``keys`` are the configuration keys at fault."""
    exception = ConfigException(trace_id_of(context), code, message)
    named = ",".join(keys)
    return exception.with_details("keys", named) if named else exception
