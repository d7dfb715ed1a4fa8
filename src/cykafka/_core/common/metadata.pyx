"""The result of list_topics(): a cluster's brokers, topics and partitions."""
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.common.errors cimport error_from

from cykafka._core.common.naming import public


@public("cykafka.admin")
class ClusterMetadata:
    """A cluster as one broker sees it.

    Attributes
    ----------
    cluster_id : str or None
    controller_id : int
        -1 if unknown.
    brokers : dict of int to BrokerMetadata
    topics : dict of str to TopicMetadata
    orig_broker_id : int
        The broker that responded.
    orig_broker_name : str
    """

    def __init__(self):
        self.cluster_id = None
        self.controller_id = -1
        self.brokers = {}
        self.topics = {}
        self.orig_broker_id = -1
        self.orig_broker_name = None

    def __repr__(self):
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self):
        return str(self.cluster_id)


@public("cykafka.admin")
class BrokerMetadata:
    """A broker: ``id``, ``host`` and ``port``."""

    def __init__(self):
        self.id = -1
        self.host = None
        self.port = -1

    def __repr__(self):
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self):
        return f"{self.host}:{self.port}/{self.id}"


@public("cykafka.admin")
class TopicMetadata:
    """A topic: ``topic`` (its name), ``partitions`` (a dict of number to PartitionMetadata) and
    ``error``."""

    def __init__(self):
        self.topic = None
        self.partitions = {}
        self.error = None

    def __repr__(self):
        error = "" if self.error is None else f", {self.error}"
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{error})"

    def __str__(self):
        return str(self.topic)


@public("cykafka.admin")
class PartitionMetadata:
    """A partition: ``id``, ``leader``, ``replicas``, ``isrs`` (broker ids) and ``error``."""

    def __init__(self):
        self.id = -1
        self.leader = -1
        self.replicas = []
        self.isrs = []
        self.error = None

    def __repr__(self):
        error = "" if self.error is None else f", {self.error}"
        return f"PartitionMetadata({self.id}{error})"

    def __str__(self):
        return str(self.id)


cdef object _partition_from(const rd_kafka_metadata_partition_t *c_partition):
    cdef int i
    partition = PartitionMetadata()
    partition.id = c_partition.id
    partition.leader = c_partition.leader
    partition.replicas = [c_partition.replicas[i] for i in range(c_partition.replica_cnt)]
    partition.isrs = [c_partition.isrs[i] for i in range(c_partition.isr_cnt)]
    if c_partition.err:
        partition.error = error_from(c_partition.err, NULL)
    return partition


cdef object text_of(const char *text):
    """Decode a text. Return None for NULL, because a faulty broker may omit a name."""
    return None if text is NULL else text.decode("utf-8", "replace")


cdef object _topic_from(const rd_kafka_metadata_topic_t *c_topic):
    cdef int i
    topic = TopicMetadata()
    topic.topic = text_of(c_topic.topic)
    for i in range(c_topic.partition_cnt):
        partition = _partition_from(&c_topic.partitions[i])
        topic.partitions[partition.id] = partition
    if c_topic.err:
        topic.error = error_from(c_topic.err, NULL)
    return topic


cdef object metadata_from(const rd_kafka_metadata_t *metadata):
    """Copy librdkafka's metadata. The caller adds the cluster id and the controller id."""
    cdef int i
    cluster = ClusterMetadata()
    for i in range(metadata.broker_cnt):
        broker = BrokerMetadata()
        broker.id = metadata.brokers[i].id
        broker.host = text_of(metadata.brokers[i].host)
        broker.port = metadata.brokers[i].port
        cluster.brokers[broker.id] = broker
    for i in range(metadata.topic_cnt):
        topic = _topic_from(&metadata.topics[i])
        cluster.topics[topic.topic] = topic
    cluster.orig_broker_id = metadata.orig_broker_id
    if metadata.orig_broker_name is not NULL:
        cluster.orig_broker_name = metadata.orig_broker_name.decode()
    return cluster
