"""Progress: tracks the messages that the consumer has returned since the last transaction.

``Producer.transaction(consumer)`` commits the positions of the assigned partitions at the end of
its block. A revocation, a seek or another assignment can remove a position before that. The
brokers would accept a transaction without the position, and the group would skip messages. So the
consumer *gives up* such a partition: the block fails, and the consumer seeks back.
"""
cimport cython

from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.config cimport property_of
from cykafka._core.common.partition cimport TopicPartition
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.offsets cimport assignment, positions

from cykafka._core.common.errors import ClosedError, KafkaError, KafkaException
from cykafka._core.consume.offsets import committed, seek


@cython.final
@cython.no_gc_clear
cdef class Progress:
    """One consumer's progress."""

    def __cinit__(self, Backlog backlog not None):
        self._backlog = backlog
        self._suitable = -1
        self._marks = {}
        self._given_up = {}
        self._unread = set()
        self._starts = {}

    cdef bint suits(self, Handle handle) except -1:
        """Whether a transaction may commit this consumer's offsets."""
        if self._suitable < 0 and handle._ptr is not NULL:
            self._suitable = (
                property_of(handle._ptr, "enable.auto.commit") == "false"
                and property_of(handle._ptr, "isolation.level") == "read_committed")
        return self._suitable > 0

    # -- reading

    cdef int note_starts(self, rd_kafka_message_t **first, size_t cnt) except -1:
        """Record where reading a partition begins, before the consumer returns its first message.

        A failed transaction seeks back to this offset if the group has committed none.
        """
        cdef size_t i
        cdef str topic
        for i in range(cnt):
            if first[i].err or first[i].rkt is NULL or (
                    i > 0 and first[i].rkt == first[i - 1].rkt and not first[i - 1].err
                    and first[i].partition == first[i - 1].partition):
                continue
            topic = self._backlog.name_of(rd_kafka_topic_name(first[i].rkt))
            if topic is self._noted_topic and first[i].partition == self._noted_partition:
                continue
            key = (topic, first[i].partition)
            if key in self._unread:
                self._starts.setdefault(key, first[i].offset)
                self._unread.discard(key)
                self.starting = len(self._unread) > 0
            self._noted_topic = topic
            self._noted_partition = first[i].partition
        return 0

    cdef int begin_reading(self, Handle handle, list partitions) except -1:
        """Note that the next message of each of these partitions is its first."""
        if self.suits(handle):
            self._unread.update([(item.topic, item.partition) for item in partitions])
            self.starting = len(self._unread) > 0
            self._noted_topic = None
        return 0

    cdef int begin_anew(self) except -1:
        """Note that no partition is assigned."""
        self._unread.clear()
        self.starting = False
        return 0

    cdef int give_up(self, Handle handle, list partitions, rd_kafka_resp_err_t err,
                     str words) except -1:
        """Note that the positions of these partitions (None: of all) are about to vanish.

        The next transaction cannot commit the offsets of their returned messages.
        """
        if not self.suits(handle):
            return 0
        if partitions is None:
            partitions = [TopicPartition(*key) for key in self._starts]
        try:
            lost = {(item.topic, item.partition) for item in self._uncommitted(handle, partitions)}
        except ClosedError:  # another thread closes, and its close() may still fail
            lost = {(item.topic, item.partition) for item in partitions}
        for item in partitions:
            key = item.topic, item.partition
            self._marks.pop(key, None)
            if key in lost:
                self._given_up.setdefault(key, KafkaError(
                    <int>err, f"The transaction cannot commit the offsets of {item.topic} "
                    f"[{item.partition}], whose messages were read: {words}"))
            elif key not in self._given_up:
                self._starts.pop(key, None)
            self._unread.discard(key)
        self.starting = len(self._unread) > 0
        return 0

    # -- transaction blocks, see produce/transaction

    cdef int check_suitable(self, Handle handle) except -1:
        """Raise unless a transaction may commit this consumer's offsets."""
        handle.check_open()
        for name, value, why in (
                ("enable.auto.commit", "false",
                 "only the transaction may commit offsets"),
                ("isolation.level", "read_committed",
                 "open transactions may still be aborted")):
            if handle.property(name) != value:
                raise ValueError(f"consumer: expected {name}={value}: {why}")
        return 0

    def prepare(self, Handle handle not None, timeout):
        """An operation: prepare for a transaction with this consumer's offsets; timeout in s.

        Raises a retriable error if the consumer has returned messages that the transaction cannot
        commit. The consumer has then sought back, and returns these messages again.
        """
        if not self._behind and not self._given_up:
            return
        errors = self._given_up  # a reference of our own: a finalizer may replace the attribute
        errors = list(errors.values())
        again = self._behind and len(self._uncommitted(handle, assignment(handle))) > 0
        yield from self.rewind(handle, timeout)
        for error in errors:
            raise KafkaException(KafkaError(
                error.code(), f"{error.str()}; the consumer has sought back, and no transaction "
                "has begun: read again", retriable=True))
        if again:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__RETRY,
                "The last transaction failed, and the consumer returned more messages before it "
                "could seek back; the consumer has now sought back, and no transaction has "
                "begun: read again", retriable=True))

    cdef list transaction_offsets(self, Handle handle):
        """Return the positions to commit. Raise if they do not cover all returned messages."""
        read = self._read_positions(handle)
        for error in self._given_up.values():
            raise KafkaException(KafkaError(error.code(), error.str(), txn_requires_abort=True))
        return read

    cdef int note_committed(self, list places) except -1:
        """Note that a transaction has committed these positions."""
        self._marks = {(item.topic, item.partition): item.offset for item in places}
        self._starts.update(self._marks)
        return 0

    cdef int note_failed(self, Handle handle) except -1:
        """Note that a transaction failed: no position may be committed before rewind()."""
        self._behind = True
        self._marks = {}
        try:
            self._marks = {(item.topic, item.partition): item.offset
                           for item in self._read_positions(handle)}
        except (KafkaException, ClosedError):
            pass  # without marks, all messages count as returned since then
        return 0

    def rewind(self, Handle handle not None, timeout):
        """An operation: seek to the committed offsets, or where none is committed, to where
        reading began; timeout in s.

        A transaction begins only after this has succeeded.
        """
        self._behind = True
        read = self._handed_over(handle, assignment(handle))
        read += [item for item in assignment(handle)
                 if item not in read and (item.topic, item.partition) in self._given_up]
        if read:
            targets = []
            for item in (yield from committed(handle, read, timeout)):
                if item.error is not None:
                    raise KafkaException(item.error)
                offset = item.offset
                if offset < 0:
                    offset = self._starts.get((item.topic, item.partition),
                                              RD_KAFKA_OFFSET_BEGINNING)
                targets.append(TopicPartition(item.topic, item.partition, offset))
            # If only some seeks succeed, the consumer may return messages twice.
            self._marks = {}
            outcomes = yield from seek(handle, self._backlog, targets)
            for item, error in zip(targets, outcomes):
                if error is not None and item in assignment(handle):
                    raise KafkaException(error)
        self._marks = {}
        self._given_up = {}
        self._behind = False

    cdef list _read_positions(self, Handle handle):
        """Return the positions of the assigned partitions with returned messages."""
        return [item for item in positions(handle, self._backlog, assignment(handle))
                if item.offset >= 0]

    cdef list _uncommitted(self, Handle handle, list partitions):
        """Select the partitions with messages returned since the last transaction."""
        return [item for item in self._handed_over(handle, partitions)
                if self._marks.get((item.topic, item.partition)) != item.offset]

    cdef list _handed_over(self, Handle handle, list partitions):
        """Select the partitions with returned messages, with their positions.

        Messages that are only gathered, because a callback raised, also change the position.
        """
        return [item for item in positions(handle, self._backlog, partitions)
                if item.offset >= 0 and (item.topic, item.partition) not in self._unread]
