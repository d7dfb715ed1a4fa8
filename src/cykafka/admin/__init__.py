"""The administrative client, with confluent_kafka's interface."""

from cykafka._core.admin.client import Admin as _Admin
from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.metadata import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from cykafka._core.common.partition import OFFSET_INVALID
from cykafka._core.common.partition import TopicPartition as _TopicPartition  # noqa: F401

# Also with an underscore, because programs import these names from confluent_kafka.admin.
from cykafka._core.model import ConsumerGroupState as _ConsumerGroupState  # noqa: F401
from cykafka._core.model import ConsumerGroupTopicPartitions as _ConsumerGroupTopicPartitions  # noqa: F401
from cykafka._core.model import ConsumerGroupType as _ConsumerGroupType  # noqa: F401
from cykafka._core.model import ElectionType as _ElectionType  # noqa: F401
from cykafka._core.model import IsolationLevel as _IsolationLevel  # noqa: F401
from cykafka._core.model import TopicCollection as _TopicCollection  # noqa: F401
from cykafka._core.model.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from cykafka._core.model.config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from cykafka._core.model.group import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    GroupMember,
    GroupMetadata,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
)
from cykafka._core.model.offset import DeletedRecords, ListOffsetsResultInfo, OffsetSpec
from cykafka._core.model.scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from cykafka._core.model.topic import (
    DescribeClusterResult,
    NewPartitions,
    NewTopic,
    TopicDescription,
)
from cykafka.admin import _access, _cluster, _configs, _groups, _partitions, _topics

CONFIG_SOURCE_UNKNOWN_CONFIG = ConfigSource.UNKNOWN_CONFIG.value
CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG = ConfigSource.DYNAMIC_BROKER_CONFIG.value
CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value
CONFIG_SOURCE_STATIC_BROKER_CONFIG = ConfigSource.STATIC_BROKER_CONFIG.value
CONFIG_SOURCE_DEFAULT_CONFIG = ConfigSource.DEFAULT_CONFIG.value
CONFIG_SOURCE_GROUP_CONFIG = ConfigSource.GROUP_CONFIG.value
RESOURCE_UNKNOWN = ResourceType.UNKNOWN.value
RESOURCE_ANY = ResourceType.ANY.value
RESOURCE_TOPIC = ResourceType.TOPIC.value
RESOURCE_GROUP = ResourceType.GROUP.value
RESOURCE_BROKER = ResourceType.BROKER.value
RESOURCE_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID.value


class AdminClient(_Admin):
    """Administers topics, partitions, configurations, access rules, groups and users.

    Most methods return at once: a ``concurrent.futures.Future``, or a dict with a future for each
    item of the request. ``result()`` of a future waits for the cluster's answer and returns it, or
    raises :class:`KafkaException`. Every future is done at the latest after `request_timeout`.
    The callbacks of futures run in the client's thread, which delivers no other answers meanwhile.
    A callback must not wait for another future of the same client.

    Keywords that many methods have:

    - `request_timeout` (s): limits the whole request, finding the broker included; by default
      ``socket.timeout.ms``.
    - `operation_timeout` (s): limits the broker's wait until the cluster has applied the change;
      0 does not wait. By default ``socket.timeout.ms``.
    - `validate_only`: the broker checks the request and changes nothing.

    Use the client as a context manager, or :meth:`close` it: requests without an answer then fail
    with ``_DESTROY``. A client without references lives on until its requests are answered.

    If the controller is down, the requests that it should answer time out. Each timeout makes the
    client ask another broker for the controller, so later requests reach the new one.

    Parameters
    ----------
    *args, **kwargs
        ``AdminClient(dict)``, ``AdminClient(dict, **kwargs)`` or ``AdminClient(**kwargs)``:
        librdkafka's properties, and the keys ``error_cb``, ``throttle_cb``, ``stats_cb``,
        ``oauth_cb`` and ``logger``.
    """

    create_topics = _topics.create_topics
    delete_topics = _topics.delete_topics
    create_partitions = _topics.create_partitions
    describe_topics = _topics.describe_topics

    list_offsets = _partitions.list_offsets
    delete_records = _partitions.delete_records
    elect_leaders = _partitions.elect_leaders

    describe_configs = _configs.describe_configs
    alter_configs = _configs.alter_configs
    incremental_alter_configs = _configs.incremental_alter_configs

    create_acls = _access.create_acls
    describe_acls = _access.describe_acls
    delete_acls = _access.delete_acls

    list_consumer_groups = _groups.list_consumer_groups
    describe_consumer_groups = _groups.describe_consumer_groups
    delete_consumer_groups = _groups.delete_consumer_groups
    list_consumer_group_offsets = _groups.list_consumer_group_offsets
    alter_consumer_group_offsets = _groups.alter_consumer_group_offsets
    delete_consumer_group_offsets = _groups.delete_consumer_group_offsets

    describe_cluster = _cluster.describe_cluster
    describe_user_scram_credentials = _cluster.describe_user_scram_credentials
    alter_user_scram_credentials = _cluster.alter_user_scram_credentials


__all__ = [
    "CONFIG_SOURCE_DEFAULT_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG",
    "CONFIG_SOURCE_GROUP_CONFIG",
    "CONFIG_SOURCE_STATIC_BROKER_CONFIG",
    "CONFIG_SOURCE_UNKNOWN_CONFIG",
    "OFFSET_INVALID",
    "RESOURCE_ANY",
    "RESOURCE_BROKER",
    "RESOURCE_GROUP",
    "RESOURCE_TOPIC",
    "RESOURCE_TRANSACTIONAL_ID",
    "RESOURCE_UNKNOWN",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AdminClient",
    "AlterConfigOpType",
    "BrokerMetadata",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "DeletedRecords",
    "DescribeClusterResult",
    "GroupMember",
    "GroupMetadata",
    "KafkaError",
    "KafkaException",
    "ListConsumerGroupsResult",
    "ListOffsetsResultInfo",
    "MemberAssignment",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "PartitionMetadata",
    "ResourcePatternType",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "TopicDescription",
    "TopicMetadata",
    "UserScramCredentialAlteration",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
]
