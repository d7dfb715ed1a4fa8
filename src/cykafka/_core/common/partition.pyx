"""TopicPartition, conversions between lists of them and librdkafka's lists, and topic names."""
import re

cimport cython
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from cykafka._core.clib.librdkafka cimport *
from cykafka._core.common.arguments cimport (
    MAX_TEXT,
    check_count,
    int_argument,
    plain_str,
    str_argument,
    utf8,
)
from cykafka._core.common.errors cimport error_from

from cykafka._core.common.naming import public

OFFSET_BEGINNING = <int64_t>RD_KAFKA_OFFSET_BEGINNING
OFFSET_END = <int64_t>RD_KAFKA_OFFSET_END
OFFSET_STORED = <int64_t>RD_KAFKA_OFFSET_STORED
OFFSET_INVALID = <int64_t>RD_KAFKA_OFFSET_INVALID
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@cython.total_ordering
cdef class TopicPartition:
    """TopicPartition(topic, partition=-1, offset=-1001, metadata=None, leader_epoch=None)\n--\n
    A topic's partition, and an offset in it.

    Parameters
    ----------
    topic : str
        Topic name.
    partition : int
        Partition number; -1 for none.
    offset : int
        An offset, or one of ``OFFSET_BEGINNING``, ``OFFSET_END``, ``OFFSET_STORED`` and
        ``OFFSET_INVALID`` (the default). For ``offsets_for_times``, a timestamp in ms.
    metadata : str, optional
        Text to commit with the offset.
    leader_epoch : int, optional
        The offset's leader epoch (KIP-320).

    Attributes
    ----------
    error : KafkaError or None
        Why an operation failed for this partition. The client sets it.

    Notes
    -----
    Equality, order and hash depend only on topic and partition.
    """

    @cython.embedsignature(False)
    def __init__(self, topic=None, partition=RD_KAFKA_PARTITION_UA,
                 offset=RD_KAFKA_OFFSET_INVALID, metadata=None, leader_epoch=None):
        """__init__($self, topic, partition=-1, offset=-1001, metadata=None,
                    leader_epoch=None)\n--\n
        Set the attributes; the class describes them."""
        name = str_argument(topic, "topic")
        if metadata is not None and not isinstance(metadata, str):
            raise TypeError(f"metadata: expected a str or None, got {type(metadata).__name__}")
        self.topic = name
        self.partition = partition
        self.offset = offset
        self._metadata = None if metadata is None else plain_str(metadata)
        self._leader_epoch = -1 if leader_epoch is None else <int32_t>int_argument(
            leader_epoch, "leader_epoch", INT32_MIN, INT32_MAX)

    # Properties, so that the setters can refuse floats, which would lose their fraction.

    @property
    def partition(self):
        """Partition number; -1 for none."""
        return self._partition

    @partition.setter
    def partition(self, number):
        self._partition = <int32_t>int_argument(number, "partition", INT32_MIN, INT32_MAX)

    @property
    def offset(self):
        """An offset, or one of the ``OFFSET_`` constants."""
        return self._offset

    @offset.setter
    def offset(self, number):
        self._offset = int_argument(number, "offset", INT64_MIN, INT64_MAX)

    @property
    def metadata(self):
        """Text committed with the offset, or None."""
        return self._metadata

    @property
    def leader_epoch(self):
        """The offset's leader epoch, or None if unknown."""
        return None if self._leader_epoch < 0 else self._leader_epoch

    def __repr__(self):
        return (f"TopicPartition{{topic={self.topic},partition={self.partition},"
                f"offset={self.offset},leader_epoch={self.leader_epoch},error={self.error}}}")

    __str__ = __repr__

    def __hash__(self):
        return hash((self.topic, self._partition))

    def __eq__(self, other):
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return (self._partition == (<TopicPartition>other)._partition
                and self.topic == (<TopicPartition>other).topic)

    def __lt__(self, other):
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return ((self.topic, self._partition)
                < ((<TopicPartition>other).topic, (<TopicPartition>other)._partition))

    def __reduce__(self):
        return (_rebuild, (type(self), self.topic, self.partition, self.offset, self._metadata,
                           self.leader_epoch, self.error))


def _rebuild(cls, topic, partition, offset, metadata, leader_epoch, error):
    tp = cls(topic, partition, offset, metadata, leader_epoch)
    (<TopicPartition?>tp).error = error
    return tp


cdef TopicPartition partition_from(const rd_kafka_topic_partition_t *rktpar):
    """Copy one element of librdkafka's list."""
    cdef TopicPartition tp = TopicPartition.__new__(TopicPartition)
    tp.topic = rktpar.topic.decode()
    tp._partition = rktpar.partition
    tp._offset = rktpar.offset
    tp._leader_epoch = rd_kafka_topic_partition_get_leader_epoch(rktpar)
    tp._metadata = None
    if rktpar.metadata is not NULL:
        # Confluent's clients commit the text with a trailing NUL, other clients without.
        tp._metadata = (<char *>rktpar.metadata)[:rktpar.metadata_size].decode(
            "utf-8", "replace").rstrip("\0")
    tp.error = error_from(rktpar.err, NULL) if rktpar.err else None
    return tp


cdef list partitions_from(const rd_kafka_topic_partition_list_t *rktparlist):
    """Copy librdkafka's list; return an empty list for NULL."""
    cdef int i
    if rktparlist is NULL:
        return []
    return [partition_from(&rktparlist.elems[i]) for i in range(rktparlist.cnt)]


cdef rd_kafka_topic_partition_list_t *partitions_to(object partitions, str argument) except NULL:
    """Convert a sequence of TopicPartition to librdkafka's list, which the caller destroys."""
    cdef rd_kafka_topic_partition_list_t *rktparlist
    cdef rd_kafka_topic_partition_t *rktpar
    cdef TopicPartition tp
    if not isinstance(partitions, (list, tuple)):
        raise TypeError(f"{argument}: expected a list of TopicPartition, "
                        f"got {type(partitions).__name__}")
    # Copy the list: a subclass of list may return other items next time.
    partitions = list(partitions)
    check_count(len(partitions), argument)
    for number, item in enumerate(partitions):
        if not isinstance(item, TopicPartition):
            raise TypeError(f"{argument}[{number}]: expected a TopicPartition, "
                            f"got {type(item).__name__}")
        # Kafka allows 249 characters. With more than 512, assign() crashes librdkafka.
        if len((<TopicPartition>item).topic) > 249:
            raise ValueError(f"{argument}: {(<TopicPartition>item).topic[:40]!r}... is longer "
                             "than the 249 characters of a topic's name")
    rktparlist = rd_kafka_topic_partition_list_new(<int>len(partitions))
    try:
        for tp in partitions:
            rktpar = rd_kafka_topic_partition_list_add(rktparlist, c_name(tp.topic), tp._partition)
            rktpar.offset = tp._offset
            rd_kafka_topic_partition_set_leader_epoch(rktpar, tp._leader_epoch)
            if tp._metadata is not None:
                metadata = (<str>tp._metadata).encode()
                if len(metadata) > MAX_TEXT:
                    raise ValueError(f"{argument}: the metadata of {tp.topic} [{tp.partition}] "
                                     f"has {len(metadata)} bytes, the limit is {MAX_TEXT} for a "
                                     "string in Kafka's protocol")
                rktpar.metadata = malloc(len(metadata) + 1)  # freed with the list
                if rktpar.metadata is NULL:
                    raise MemoryError
                memcpy(rktpar.metadata, <const char *>metadata, len(metadata) + 1)
                # librdkafka ignores empty metadata. So include an empty text's trailing NUL, as
                # confluent_kafka does for every text.
                rktpar.metadata_size = len(metadata) or 1
    except:
        rd_kafka_topic_partition_list_destroy(rktparlist)
        raise
    return rktparlist


cdef rd_kafka_topic_partition_list_t *topics_to(object topics) except NULL:
    """Convert a sequence of topic names to librdkafka's list, which the caller destroys."""
    cdef rd_kafka_topic_partition_list_t *rktparlist
    if not isinstance(topics, (list, tuple)):
        raise TypeError(f"topics: expected a list of str, got {type(topics).__name__}")
    names = [str_argument(topic, f"topics[{number}]") for number, topic in enumerate(topics)]
    check_count(len(names), "topics")
    rktparlist = rd_kafka_topic_partition_list_new(<int>len(names))
    try:
        for name in names:
            rd_kafka_topic_partition_list_add(rktparlist, c_name(name), RD_KAFKA_PARTITION_UA)
    except:
        rd_kafka_topic_partition_list_destroy(rktparlist)
        raise
    return rktparlist


cdef str subscription_fault(object topics):
    """Describe what is wrong with these topics; librdkafka only says "invalid". Or return None."""
    if not topics:
        return "topics: expected at least one; call unsubscribe() to end the subscription"
    seen = set()
    for number, topic in enumerate(topics):
        if not topic:
            return f"topics[{number}]: expected a name, got an empty str"
        if topic in seen:
            return f"topics[{number}]: {topic!r} is a duplicate"
        seen.add(topic)
    patterns = [repr(topic) for topic in topics if topic.startswith("^")]
    if not patterns:
        return None
    return ("topics: expected POSIX extended regular expressions after ^, "
            f"{'one of them is not: ' if len(patterns) > 1 else 'got '}{', '.join(patterns)}")


def is_topic_name(name):
    """Whether brokers accept a topic name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


cdef const char *c_name(str topic) except NULL:
    """Return a topic name's UTF-8 form, which lives as long as the str: keep the str."""
    cdef Py_ssize_t size
    cdef const char *name = utf8(topic, &size, "topic")
    if size > MAX_TEXT:
        raise ValueError(f"topic: {topic[:40]!r}... has {size} bytes, the limit is {MAX_TEXT} for "
                         "a string in Kafka's protocol")
    if "\0" in topic:
        raise ValueError(f"topic: {topic!r} contains a NUL character")
    return name


public("cykafka")(TopicPartition)
