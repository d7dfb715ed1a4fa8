"""The context that commits the offsets of a consumer."""

from __future__ import annotations

import pytest

from cykafka.compat.kafka_python.common import (
    FailedPayloadsError,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetOutOfRangeError,
    RequestTimedOutError,
)
from cykafka.compat.kafka_python.context import OffsetCommitContext

pytestmark = pytest.mark.ours


class Client:
    def __init__(self) -> None:
        self.commits: list[tuple[bytes, list[OffsetCommitRequest]]] = []
        self.response: OffsetCommitResponse | Exception = OffsetCommitResponse(b"t", 0, 0)

    def send_offset_commit_request(
        self, group: bytes, payloads: list[OffsetCommitRequest]
    ) -> list[OffsetCommitResponse | Exception]:
        self.commits.append((group, payloads))
        return [self.response]


class Consumer:
    topic = b"t"
    group = b"g"

    def __init__(self) -> None:
        self.client = Client()
        self.offsets = {0: 10, 1: 20}
        self.seeks: list[tuple[int, int]] = []

    def seek(self, offset: int, whence: int) -> None:
        self.seeks.append((offset, whence))

    def read(self) -> None:
        self.offsets = {partition: offset + 5 for partition, offset in self.offsets.items()}


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def test_context_commits_the_highest_mark_of_each_partition(consumer: Consumer) -> None:
    with OffsetCommitContext(consumer) as context:
        consumer.read()
        context.mark(0, 10)
        context.mark(0, 12)
        context.mark(0, 11)
        context.mark(1, 20)

    requests = [OffsetCommitRequest(b"t", 0, 13, None), OffsetCommitRequest(b"t", 1, 21, None)]
    assert consumer.client.commits == [(b"g", requests)]
    assert consumer.offsets == {0: 13, 1: 21}
    assert consumer.seeks == [(0, 1)]


def test_context_resets_the_consumer_without_a_mark(consumer: Consumer) -> None:
    with OffsetCommitContext(consumer):
        consumer.read()

    assert consumer.client.commits == []
    assert consumer.offsets == {0: 10, 1: 20}
    assert consumer.seeks == [(0, 1)]


def test_context_resets_the_consumer_after_an_exception(consumer: Consumer) -> None:
    def process() -> None:
        with OffsetCommitContext(consumer) as context:
            consumer.read()
            context.mark(0, 12)
            raise KeyError

    with pytest.raises(KeyError):
        process()

    assert consumer.client.commits == []
    assert consumer.offsets == {0: 10, 1: 20}
    assert consumer.seeks == [(0, 1)]


def test_context_seeks_the_first_messages_after_an_offset_out_of_range(
    consumer: Consumer,
) -> None:
    with OffsetCommitContext(consumer) as context:
        context.mark(0, 12)
        raise OffsetOutOfRangeError("gone")

    assert consumer.client.commits == []
    assert consumer.seeks == [(0, 0)]


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (OffsetCommitResponse(b"t", 0, 7), RequestTimedOutError),
        (FailedPayloadsError("request"), FailedPayloadsError),
    ],
)
def test_context_raises_a_failed_commit_and_leaves_the_consumer(
    consumer: Consumer, response: OffsetCommitResponse | Exception, error: type[Exception]
) -> None:
    consumer.client.response = response

    def process() -> None:
        with OffsetCommitContext(consumer) as context:
            consumer.read()
            context.mark(0, 12)

    with pytest.raises(error):
        process()

    assert consumer.offsets == {0: 15, 1: 25}
    assert consumer.seeks == []


def test_context_is_true_with_a_mark(consumer: Consumer) -> None:
    context = OffsetCommitContext(consumer)
    assert not context

    with context:
        assert not context
        context.mark(0, 0)
        assert context


def test_context_forgets_the_marks_of_an_earlier_block(consumer: Consumer) -> None:
    context = OffsetCommitContext(consumer)
    with context:
        context.mark(0, 12)

    with context:
        assert not context

    assert len(consumer.client.commits) == 1
    assert consumer.offsets == {0: 13, 1: 20}
