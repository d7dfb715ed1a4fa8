"""Reads record batches as a member of a share group, and accepts those that were printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cykafka import AcknowledgeType, KafkaException, MessageBatch, ShareConsumer
from cykafka.cli.terminal.failures import Failed, reason
from cykafka.cli.terminal.texts import name_of

__all__ = ["ShareMember"]

_WAIT_S = 0.1


class ShareMember:
    """A member of a share group. Its group delivers records again that it has not printed.

    Parameters
    ----------
    consumer : ShareConsumer
        In explicit mode.
    topics : list of str
    timeout : float
        Longest time for a commit in s.
    warn : callable
        Gets a line about each record that librdkafka cannot read.
    """

    def __init__(
        self,
        consumer: ShareConsumer,
        topics: list[str],
        timeout: float,
        warn: Callable[[str], None],
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._timeout = timeout
        self._warn = warn

    def batches(self) -> Iterator[MessageBatch]:
        """Yield records; a batch, maybe empty, at least every 0.1 s.

        Raises
        ------
        Failed
            The group does not accept the member.
        """
        self._consumer.subscribe(self._topics)
        while True:
            try:
                batch = self._consumer.consume_batch(_WAIT_S)
            except KafkaException as error:
                if error.args[0].retriable():
                    self._warn(reason(error))
                    continue
                raise Failed(reason(error)) from error
            for message in batch.errors:
                place = f"{message.topic()}[{message.partition()}] at {message.offset()}"
                self._warn(f"skipped {place}: {message.error()}")
            # Of a batch that is not printed to its end, the rest goes to another member.
            self._consumer.acknowledge(batch, AcknowledgeType.RELEASE)
            yield batch

    def note_printed(self, batch: MessageBatch) -> None:
        """Accept records that the command has printed. The next poll sends it."""
        self._consumer.acknowledge(batch)

    def finish(self) -> None:
        """Send the last acknowledgements.

        Raises
        ------
        Failed
            The commit failed: the group delivers the records again.
        """
        for partition, error in self._consumer.commit_sync(self._timeout).items():
            if error is not None:
                raise Failed(
                    f"cannot accept the records of {name_of(partition)}, which the group delivers "
                    f"again: {reason(error)}"
                )
