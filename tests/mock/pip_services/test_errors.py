"""Kafka errors as exceptions of pip-services, and the three forms of a context."""

from __future__ import annotations

from typing import Any

import pytest
from pip_services4_commons import errors
from pip_services4_components.context import Context
from pip_services4_observability.log import ConsoleLogger

from cykafka import DeliveryError, KafkaError, KafkaException
from pip_services4_kafka._context import get_trace_id, to_context
from pip_services4_kafka._errors import config_error, convert, convert_delivery, kafka_error

pytestmark = pytest.mark.ours


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_AUTHENTICATION", errors.UnauthorizedException),
        ("TOPIC_AUTHORIZATION_FAILED", errors.UnauthorizedException),
        ("_MSG_TIMED_OUT", errors.ConnectionException),
        ("_ALL_BROKERS_DOWN", errors.ConnectionException),
        ("MSG_SIZE_TOO_LARGE", errors.BadRequestException),
        ("_UNKNOWN_PARTITION", errors.NotFoundException),
        ("UNKNOWN_TOPIC_OR_PART", errors.NotFoundException),
        ("TOPIC_ALREADY_EXISTS", errors.ConflictException),
        ("_STATE", errors.InvalidStateException),
        ("UNSUPPORTED_VERSION", errors.UnsupportedException),
        ("ILLEGAL_GENERATION", errors.InvocationException),
    ],
)
def test_error_code_decides_the_exception_type(name: str, kind: type) -> None:
    error = KafkaException(KafkaError(getattr(KafkaError, name), "told"))
    exception = convert(error, "doing", "123", topic="t", partition=None)

    assert type(exception) is kind
    assert exception.code == name.lstrip("_")
    assert exception.message == "doing: told"
    assert exception.trace_id == "123"
    assert exception.cause is exception.__cause__ is error
    assert exception.details == {"topic": "t"}


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (RuntimeError("Producer has been closed"), errors.InvalidStateException, "NOT_OPEN"),
        (TypeError("values[0]"), errors.BadRequestException, "INVALID_MESSAGE"),
        (ValueError("values[0]"), errors.BadRequestException, "INVALID_MESSAGE"),
        (OSError("disk"), errors.InvocationException, "FAILED"),
    ],
)
def test_other_exceptions_become_typed_exceptions(error: Exception, kind: type, code: str) -> None:
    exception = convert(error, "doing")

    assert type(exception) is kind
    assert exception.code == code


def test_typed_exceptions_are_not_converted() -> None:
    exception = errors.ConfigException(None, "X", "x")

    assert convert(exception, "doing") is exception
    assert kafka_error(exception) is None
    assert kafka_error(KafkaException("words")) is None


def test_failed_batch_error_has_the_count_and_the_messages() -> None:
    first = KafkaError(KafkaError._MSG_TIMED_OUT)
    failures = {2: first, 7: KafkaError(KafkaError._UNKNOWN_PARTITION)}
    exception = convert_delivery(DeliveryError(first, failures), "t")

    assert type(exception) is errors.ConnectionException
    assert exception.details == {
        "topic": "t",
        "failed": "2",
        "indices": "2,7",
        "perhaps_stored": "2",
    }
    assert "the brokers may have stored" in str(exception)
    (sure,) = (convert_delivery(DeliveryError(failures[7], {7: failures[7]}), "t"),)
    assert "perhaps_stored" not in sure.details
    assert "may have stored" not in str(sure)


def test_configuration_errors_name_the_keys() -> None:
    assert config_error("C", "m", None, ["a", "b"]).details == {"keys": "a,b"}
    assert config_error("C", "m").details is None


def test_context_is_none_a_context_or_a_trace_id() -> None:
    given = Context.from_trace_id("123")

    assert to_context(None) is None
    assert to_context("") is None
    assert to_context(given) is given
    assert [get_trace_id(context) for context in (None, "", "123", given)] == [
        None,
        None,
        "123",
        "123",
    ]
    wrong: Any
    for wrong in (1, b"123", object()):
        with pytest.raises(TypeError, match="context"):
            to_context(wrong)


def test_error_that_was_never_raised_has_an_empty_stack_trace() -> None:
    exception = convert(KafkaError(KafkaError._TRANSPORT, "gone"), "topic t")
    assert exception.stack_trace == ""
    text = ConsoleLogger()._compose_error(exception)
    assert "gone" in text
    assert "NoneType" not in text
