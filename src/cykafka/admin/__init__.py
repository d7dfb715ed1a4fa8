"""The administrative client, with confluent_kafka's interface."""

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
from cykafka.admin._cluster import ClusterRequests as _ClusterRequests
from cykafka.admin._groups import GroupRequests as _GroupRequests
from cykafka.admin._topics import TopicRequests as _TopicRequests

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


class AdminClient(_TopicRequests, _GroupRequests, _ClusterRequests):
    """Administers topics, partitions, configurations, access rules, groups and users.

    Most methods return at once: a ``concurrent.futures.Future``, or a dict with one future per
    item of the request. A future's ``result()`` waits for the cluster's response and returns it,
    or raises :class:`KafkaException`. Every future ends within `request_timeout`, unless a request
    contains tens of thousands of items: librdkafka's work grows with their square.

    Future callbacks run in the client's thread and block its other responses. So a callback must
    not wait for another future of the same client.

    Many methods accept these keywords:

    - `request_timeout` (s): limits the whole request, including the search for the broker; by
      default ``socket.timeout.ms``.
    - `operation_timeout` (s): limits the broker's wait until the cluster has applied the change;
      0 does not wait. By default ``socket.timeout.ms``.
    - `validate_only`: the broker checks the request without changing anything.

    Use the client as a context manager, or :meth:`close` it: requests without a response then fail
    with ``_DESTROY``. An unreferenced client lives until all its requests have a response.

    If the controller is down, requests to the controller time out. After each timeout, the client
    looks for the controller at another broker, so later requests reach the new controller.

    Parameters
    ----------
    config : dict
        librdkafka's properties, and the keys ``error_cb``, ``throttle_cb``, ``stats_cb``,
        ``oauth_cb`` and ``logger``. Keyword arguments are also properties.
    """


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
