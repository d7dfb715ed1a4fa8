"""KafkaError, KafkaException and the exceptions built on them."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import weakref
from types import ModuleType

import pytest


def test_error_from_a_code_has_the_text_of_librdkafka(kafka: ModuleType) -> None:
    error = kafka.KafkaError(kafka.KafkaError._TIMED_OUT)

    assert error.code() == kafka.KafkaError._TIMED_OUT
    assert error.name() == "_TIMED_OUT"
    assert error.str() == "Local: Timed out"
    assert not error.fatal()
    assert not error.retriable()
    assert not error.txn_requires_abort()


def test_error_with_a_reason_and_flags_returns_them(kafka: ModuleType) -> None:
    error = kafka.KafkaError(3, "why", fatal=True, retriable=True, txn_requires_abort=True)

    assert error.str() == "why"
    assert error.fatal()
    assert error.retriable()
    assert error.txn_requires_abort()


def test_error_takes_its_arguments_by_position(kafka: ModuleType) -> None:
    error = kafka.KafkaError(3, "why", False, True, False)

    assert (error.fatal(), error.retriable(), error.txn_requires_abort()) == (False, True, False)


@pytest.mark.parametrize("render", [str, repr])
def test_error_text_has_name_number_and_reason(kafka: ModuleType, render: type[str]) -> None:
    assert (
        render(kafka.KafkaError(-185))
        == 'KafkaError{code=_TIMED_OUT,val=-185,str="Local: Timed out"}'
    )
    assert (
        render(kafka.KafkaError(3, "why", fatal=True))
        == 'KafkaError{FATAL,code=UNKNOWN_TOPIC_OR_PART,val=3,str="why"}'
    )


def test_error_compares_with_numbers_and_errors(kafka: ModuleType) -> None:
    error = kafka.KafkaError(-185)

    assert error == -185
    assert error == kafka.KafkaError(-185, "other words")
    assert error != 3
    assert error != kafka.KafkaError(3)
    assert error < 0
    assert error <= -185
    assert error > -186
    assert error >= kafka.KafkaError(-186)
    assert -185 in [error]


def test_error_hash_and_truth(kafka: ModuleType) -> None:
    assert hash(kafka.KafkaError(3, "a")) == hash(kafka.KafkaError(3, "b"))
    assert bool(kafka.KafkaError(3))


def test_error_pickled_keeps_reason_and_flags(kafka: ModuleType) -> None:
    error = kafka.KafkaError(3, "why", fatal=True, txn_requires_abort=True)

    again = pickle.loads(pickle.dumps(error))

    assert again == error
    assert again.str() == "why"
    assert (again.fatal(), again.retriable(), again.txn_requires_abort()) == (True, False, True)


def test_error_of_an_unknown_code_has_a_text(kafka: ModuleType) -> None:
    assert kafka.KafkaError(12345).name() == "ERR_12345?"
    assert kafka.KafkaError(12345).str() == "Err-12345?"


@pytest.mark.parametrize("arguments", [(), ("three",), (None,)], ids=repr)
def test_error_rejects_a_code_that_is_not_a_number(
    kafka: ModuleType, arguments: tuple[object, ...]
) -> None:
    with pytest.raises(TypeError):
        kafka.KafkaError(*arguments)


def test_exception_carries_the_error_as_its_argument(kafka: ModuleType) -> None:
    error = kafka.KafkaError(3, "why")

    exception = kafka.KafkaException(error)

    assert isinstance(exception, Exception)
    assert exception.args == (error,)
    assert exception.args[0] is error
    assert str(exception) == str(error)


@pytest.mark.ours
def test_exception_pickled_keeps_its_error(kafka: ModuleType) -> None:
    exception = kafka.KafkaException(kafka.KafkaError(3, "why", retriable=True))

    again = pickle.loads(pickle.dumps(exception))

    assert again.args[0] == 3
    assert again.args[0].str() == "why"
    assert again.args[0].retriable()


@pytest.mark.parametrize("name", ["IllegalStateException", "ConcurrentModificationException"])
def test_state_exceptions_are_runtime_errors(kafka: ModuleType, name: str) -> None:
    with pytest.raises(RuntimeError, match="the words"):
        raise getattr(kafka, name)("the words")


@pytest.fixture(scope="module")
def error_module(kafka: ModuleType) -> ModuleType:
    return importlib.import_module(f"{kafka.__name__}.error")


@pytest.mark.parametrize(
    ("name", "base", "code"),
    [
        ("KeySerializationError", "ProduceError", "_KEY_SERIALIZATION"),
        ("ValueSerializationError", "ProduceError", "_VALUE_SERIALIZATION"),
        ("KeyDeserializationError", "ConsumeError", "_KEY_DESERIALIZATION"),
        ("ValueDeserializationError", "ConsumeError", "_VALUE_DESERIALIZATION"),
    ],
)
def test_serialization_errors_wrap_the_cause(
    kafka: ModuleType, error_module: ModuleType, name: str, base: str, code: str
) -> None:
    cause = ValueError("bad bytes")

    error = getattr(error_module, name)(exception=cause)

    assert isinstance(error, getattr(error_module, base))
    assert isinstance(error, kafka.KafkaException)
    assert error.exception is cause
    assert error.code == getattr(kafka.KafkaError, code)
    assert error.name == code
    assert "bad bytes" in str(error)


def test_consume_error_keeps_the_message(kafka: ModuleType, error_module: ModuleType) -> None:
    message = kafka.Message(value=b"v")

    error = error_module.ConsumeError(kafka.KafkaError(1), kafka_message=message)

    assert error.kafka_message is message
    assert error.code == 1


def test_error_takes_its_code_by_keyword(kafka: ModuleType) -> None:
    assert kafka.KafkaError(error=3, reason="why").code() == 3


# Raising a KafkaError of confluent_kafka ends the interpreter.
@pytest.mark.ours
def test_error_raised_itself_is_caught_as_a_kafka_exception(kafka: ModuleType) -> None:
    with pytest.raises(kafka.KafkaException) as caught:
        raise kafka.KafkaError(12345)

    error = caught.value
    assert error.args == (error,)
    assert isinstance(error.args[0], kafka.KafkaError)
    assert error.args[0].code() == 12345
    assert str(error) == 'KafkaError{code=ERR_12345?,val=12345,str="Err-12345?"}'


@pytest.mark.ours
def test_messages_error_can_be_raised(kafka: ModuleType) -> None:
    message = kafka.Message("t", error=kafka.KafkaError(3, "why", fatal=True))

    with pytest.raises(kafka.KafkaException) as caught:
        raise message.error()

    assert caught.value.args[0] == 3
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].str() == "why"


@pytest.mark.ours
def test_raised_error_compares_hashes_and_pickles_as_before(kafka: ModuleType) -> None:
    try:
        raise kafka.KafkaError(-185, "words", retriable=True)
    except kafka.KafkaError as raised:
        error = raised

    assert error == -185
    assert error in (None, -185)
    assert hash(error) == hash(-185)
    assert bool(error)
    assert not bool(kafka.KafkaError(0))
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (copied, copied.str(), copied.retriable()) == (error, "words", True)
        assert copied.args == (copied,)


@pytest.mark.ours
def test_raised_error_of_a_message_can_be_collected(kafka: ModuleType) -> None:
    """Its traceback references the frame, the frame the message, and the message the error."""

    class Seen:
        pass

    def fail() -> weakref.ref[Seen]:
        seen = Seen()
        message = kafka.Message("t", error=kafka.KafkaError(3))
        try:
            raise message.error()
        except kafka.KafkaException:
            return weakref.ref(seen)

    left = fail()
    gc.collect()

    assert left() is None
