"""A context that commits a consumer's offsets, or resets them."""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger
from types import TracebackType
from typing import Any

from cykafka.compat.kafka_python.common import (
    OffsetCommitRequest,
    OffsetOutOfRangeError,
    check_error,
)


class OffsetCommitContext:
    """Commits the messages that a block processed, and resets the consumer to the rest.

    The block calls `mark` for each processed message. At the end of the block, the context commits
    the offset after each partition's last marked message, and seeks the consumer there. So the
    next block reads the unmarked messages again. After an exception, the context commits nothing
    and restores the offsets from before the block. After an OffsetOutOfRangeError, it seeks the
    consumer to the first messages and suppresses the exception.

    The context is true if the block marked a message.

    Parameters
    ----------
    consumer : SimpleConsumer
        Create it with ``auto_commit=False`` and call its `provide_partition_info` first.

    Examples
    --------
    ::

        consumer = SimpleConsumer(client, group, topic, auto_commit=False)
        consumer.provide_partition_info()
        consumer.fetch_last_known_offsets()

        while running:
            with OffsetCommitContext(consumer) as context:
                for partition, message in consumer.get_messages(count, block=False):
                    if not process(message):
                        break
                    context.mark(partition, message.offset)
    """

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.initial_offsets: dict[int, int] = {}
        self.high_water_mark: dict[int, int] = {}
        self.logger = getLogger("kafka.context")

    def __bool__(self) -> bool:
        return bool(self.high_water_mark)

    def __enter__(self) -> OffsetCommitContext:
        self.initial_offsets = dict(self.consumer.offsets)
        self.high_water_mark = {}
        self.logger.debug("Starting at the offsets %s", self.initial_offsets)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if exc_type is None:
            self.commit()
        elif isinstance(exc_value, OffsetOutOfRangeError):
            self.handle_out_of_range()
            return True
        else:
            self.rollback()
        return False

    def mark(self, partition: int, offset: int) -> None:
        """Mark the message at `offset`, and those before it, as processed."""
        following = max(offset + 1, self.high_water_mark.get(partition, 0))
        self.logger.debug("Marking partition %s up to offset %s", partition, following)
        self.high_water_mark[partition] = following

    def commit(self) -> None:
        """Commit the marked offsets and set the consumer to them.

        Without a mark, only set the consumer to the offsets from before the block.

        Raises
        ------
        KafkaError
            A commit failed. The consumer keeps its position.
        """
        if self.high_water_mark:
            self.logger.info("Committing offsets: %s", self.high_water_mark)
            self.commit_partition_offsets(self.high_water_mark)
            self.update_consumer_offsets(self.high_water_mark)
        else:
            self.update_consumer_offsets(self.initial_offsets)

    def rollback(self) -> None:
        """Set the consumer to the offsets from before the block."""
        self.logger.info("Resetting to the offsets %s", self.initial_offsets)
        self.update_consumer_offsets(self.initial_offsets)

    def commit_partition_offsets(self, partition_offsets: Mapping[int, int]) -> None:
        """Commit offsets by partition.

        Raises
        ------
        KafkaError
            A commit failed.
        """
        self.logger.debug("Committing offsets: %s", partition_offsets)
        consumer = self.consumer
        requests = [
            OffsetCommitRequest(consumer.topic, partition, offset, None)
            for partition, offset in partition_offsets.items()
        ]
        for response in consumer.client.send_offset_commit_request(consumer.group, requests):
            check_error(response)

    def update_consumer_offsets(self, partition_offsets: Mapping[int, int]) -> None:
        """Set the consumer to offsets by partition."""
        self.logger.debug("Setting the consumer to the offsets %s", partition_offsets)
        for partition, offset in partition_offsets.items():
            self.consumer.offsets[partition] = offset
        # Sets the position of the consumer's next fetch from `offsets`.
        self.consumer.seek(0, 1)

    def handle_out_of_range(self) -> None:
        """Set the consumer to the first message of each partition."""
        self.logger.info("Seeking the first messages, because an offset is out of range")
        self.consumer.seek(0, 0)
