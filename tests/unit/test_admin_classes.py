"""The administrative classes: values with equality, order, hash and repr."""

from __future__ import annotations

import importlib
import pickle
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def api(kafka: ModuleType) -> ModuleType:
    """The `admin` module of the module under test."""
    return importlib.import_module(f"{kafka.__name__}.admin")


NAMES = """
    AclBinding AclBindingFilter AclOperation AclPermissionType AdminClient AlterConfigOpType
    BrokerMetadata CONFIG_SOURCE_DEFAULT_CONFIG CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG
    CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG
    CONFIG_SOURCE_GROUP_CONFIG CONFIG_SOURCE_STATIC_BROKER_CONFIG CONFIG_SOURCE_UNKNOWN_CONFIG
    ClusterMetadata ConfigEntry ConfigResource ConfigSource ConsumerGroupDescription
    ConsumerGroupListing DeletedRecords DescribeClusterResult GroupMember GroupMetadata
    KafkaError KafkaException ListConsumerGroupsResult ListOffsetsResultInfo MemberAssignment
    MemberDescription NewPartitions NewTopic OFFSET_INVALID OffsetSpec PartitionMetadata
    RESOURCE_ANY RESOURCE_BROKER RESOURCE_GROUP RESOURCE_TOPIC RESOURCE_TRANSACTIONAL_ID
    RESOURCE_UNKNOWN ResourcePatternType ResourceType ScramCredentialInfo ScramMechanism
    TopicDescription TopicMetadata UserScramCredentialAlteration UserScramCredentialDeletion
    UserScramCredentialUpsertion UserScramCredentialsDescription
"""

METHODS = """
    alter_configs alter_consumer_group_offsets alter_user_scram_credentials cluster_id
    create_acls create_partitions create_topics delete_acls delete_consumer_groups
    delete_records delete_topics describe_acls describe_cluster describe_configs
    describe_consumer_groups describe_topics describe_user_scram_credentials elect_leaders
    incremental_alter_configs list_consumer_group_offsets list_consumer_groups list_groups
    list_offsets list_topics poll set_sasl_credentials
"""


def test_module_has_every_name(api: ModuleType) -> None:
    assert [name for name in NAMES.split() if not hasattr(api, name)] == []


def test_client_has_every_method(api: ModuleType) -> None:
    assert [name for name in METHODS.split() if not hasattr(api.AdminClient, name)] == []
    assert len(METHODS.split()) == 26


@pytest.mark.parametrize(
    ("enumeration", "members"),
    [
        (
            "AclOperation",
            "UNKNOWN ANY ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION "
            "DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
        ),
        ("AclPermissionType", "UNKNOWN ANY DENY ALLOW"),
        ("AlterConfigOpType", "SET DELETE APPEND SUBTRACT"),
        ("ResourcePatternType", "UNKNOWN ANY MATCH LITERAL PREFIXED"),
        ("ResourceType", "UNKNOWN ANY TOPIC GROUP BROKER TRANSACTIONAL_ID"),
        ("ScramMechanism", "UNKNOWN SCRAM_SHA_256 SCRAM_SHA_512"),
    ],
)
def test_enumerations_have_the_numbers_of_librdkafka(
    api: ModuleType, enumeration: str, members: str
) -> None:
    numbers = {member.name: member.value for member in getattr(api, enumeration)}

    assert numbers == {name: number for number, name in enumerate(members.split())}


def test_sources_of_configuration_have_their_numbers(api: ModuleType) -> None:
    assert [source.value for source in api.ConfigSource] == [0, 1, 2, 3, 4, 5, 8]
    assert api.CONFIG_SOURCE_DEFAULT_CONFIG == api.ConfigSource.DEFAULT_CONFIG.value == 5
    assert (api.RESOURCE_TOPIC, api.RESOURCE_BROKER) == (2, 4)


def test_enumerations_are_ordered(api: ModuleType) -> None:
    assert api.ResourceType.TOPIC < api.ResourceType.GROUP
    assert api.AclOperation.WRITE > api.AclOperation.READ
    assert api.ScramMechanism.SCRAM_SHA_256 < api.ScramMechanism.SCRAM_SHA_512


@pytest.mark.ours
def test_scram_mechanism_of_a_newer_broker_is_unknown(api: ModuleType) -> None:
    assert api.ScramMechanism(99) is api.ScramMechanism.UNKNOWN


# -- topics


def test_new_topic_keeps_its_arguments(api: ModuleType) -> None:
    topic = api.NewTopic("t", 3, 2, config={"a": "b"})

    assert (topic.topic, topic.num_partitions, topic.replication_factor) == ("t", 3, 2)
    assert (topic.replica_assignment, topic.config) == (None, {"a": "b"})
    bare = api.NewTopic("t")
    assert (bare.num_partitions, bare.replication_factor, bare.config) == (-1, -1, None)
    assigned = api.NewTopic(topic="t", num_partitions=1, replica_assignment=[[1]])
    assert assigned.replica_assignment == [[1]]
    topic.num_partitions = 5
    assert topic.num_partitions == 5
    with pytest.raises(AttributeError):
        topic.topic = "other"


def test_new_topics_are_compared_by_name_and_partitions(api: ModuleType) -> None:
    topic = api.NewTopic("a", 3, 2)

    assert topic == api.NewTopic("a", 3, 1, config={"x": "y"})
    assert topic != api.NewTopic("a", 4, 2)
    assert hash(topic) == hash(api.NewTopic("a", 3))
    assert api.NewTopic("a", 2) < topic < api.NewTopic("b", 1)
    assert topic <= api.NewTopic("a", 3) <= topic
    assert sorted([api.NewTopic("b"), topic]) == [topic, api.NewTopic("b")]


def test_new_topic_str_names_its_fields(api: ModuleType) -> None:
    assert repr(api.NewTopic("t", 3)) == "NewTopic(topic=t,num_partitions=3)"
    assert str(api.NewTopic("t")) == "NewTopic(topic=t)"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1,), {}),
        ((None,), {}),
        (("t", "3"), {}),
        (("t", 1.5), {}),
        (("t", 1, "2"), {}),
        (("t",), {"config": "x"}),
        (("t",), {"partitions": 3}),
    ],
)
def test_new_topic_refuses_wrong_types(
    api: ModuleType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        api.NewTopic(*args, **kwargs)


def test_new_partitions_are_compared_by_value(api: ModuleType) -> None:
    wanted = api.NewPartitions("t", 5, replica_assignment=[[1]])

    assert (wanted.topic, wanted.new_total_count) == ("t", 5)
    assert wanted.replica_assignment == [[1]]
    assert wanted == api.NewPartitions("t", new_total_count=5)
    assert hash(wanted) == hash(api.NewPartitions("t", 5))
    assert wanted < api.NewPartitions("t", 6)
    assert repr(wanted) == "NewPartitions(topic=t,new_total_count=5)"
    for args in [("t",), ("t", "5"), (None, 5)]:
        with pytest.raises(TypeError):
            api.NewPartitions(*args)


@pytest.mark.ours
def test_new_topic_differs_from_other_types(api: ModuleType) -> None:
    assert api.NewTopic("t", 5) != api.NewPartitions("t", 5)
    assert api.NewTopic("t", 5) != "t"


# -- configurations


def test_resource_s_type_is_given_in_three_ways(api: ModuleType) -> None:
    of_member = api.ConfigResource(api.ResourceType.TOPIC, "t")

    assert of_member == api.ConfigResource("topic", "t") == api.ConfigResource(2, "t")
    assert (of_member.restype, of_member.restype_int, of_member.name) == (
        api.ResourceType.TOPIC, 2, "t",
    )  # fmt: skip
    assert api.ConfigResource.Type is api.ResourceType


def test_resources_are_compared_by_type_and_name(api: ModuleType) -> None:
    resource = api.ConfigResource("topic", "t", set_config={"a": "b"})

    assert hash(resource) == hash(api.ConfigResource("topic", "t"))
    assert resource != api.ConfigResource("topic", "u")
    assert resource != api.ConfigResource("group", "t")
    assert api.ConfigResource("topic", "t") < api.ConfigResource("topic", "u")
    assert repr(resource) == "ConfigResource(ResourceType.TOPIC,t)"
    assert resource != "t"


def test_resource_collects_the_values_to_set(api: ModuleType) -> None:
    given = {"a": "1"}
    resource = api.ConfigResource("topic", "t", set_config=given)

    resource.set_config("b", "2")
    resource.set_config("a", "3", overwrite=False)

    assert resource.set_config_dict == {"a": "1", "b": "2"}
    assert given == {"a": "1"}
    assert len(resource) == 2
    resource.set_config("a", "3")
    assert resource.set_config_dict["a"] == "3"
    change = api.ConfigEntry("c", "d", incremental_operation=api.AlterConfigOpType.SET)
    resource.add_incremental_config(change)
    assert resource.incremental_configs == [change]


@pytest.mark.parametrize(("restype", "name"), [("nothing", "t"), (99, "t"), ("topic", None)])
def test_resource_refuses_unknown_values(api: ModuleType, restype: Any, name: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are each client's own
        api.ConfigResource(restype, name)


def test_config_entry_keeps_its_arguments(api: ModuleType) -> None:
    entry = api.ConfigEntry("a", "b", source=1, is_read_only=1, is_default=0)

    assert (entry.name, entry.value, entry.source) == ("a", "b", 1)
    assert (entry.is_read_only, entry.is_default) == (True, False)
    assert (entry.is_sensitive, entry.is_synonym, entry.synonyms) == (False, False, {})
    assert entry.incremental_operation is None
    assert (str(entry), repr(entry)) == ('a="b"', 'ConfigEntry(a="b")')
    assert api.ConfigEntry("a", None).source == api.ConfigSource.UNKNOWN_CONFIG


@pytest.mark.ours
def test_config_entries_do_not_share_their_synonyms(api: ModuleType) -> None:
    api.ConfigEntry("a", "b").synonyms["x"] = None

    assert api.ConfigEntry("c", "d").synonyms == {}


# -- ACLs


@pytest.fixture
def binding(api: ModuleType) -> Any:
    return api.AclBinding(
        api.ResourceType.TOPIC,
        "t",
        api.ResourcePatternType.LITERAL,
        "User:u",
        "*",
        api.AclOperation.READ,
        api.AclPermissionType.ALLOW,
    )


def test_binding_s_enumerations_are_given_in_three_ways(api: ModuleType, binding: Any) -> None:
    assert binding == api.AclBinding("topic", "t", "Literal", "User:u", "*", "READ", "allow")
    assert binding == api.AclBinding(2, "t", 3, "User:u", "*", 3, 3)
    assert (binding.restype_int, binding.resource_pattern_type_int) == (2, 3)
    assert (binding.operation_int, binding.permission_type_int) == (3, 3)


def test_bindings_are_compared_by_value(api: ModuleType, binding: Any) -> None:
    other = api.AclBinding("topic", "t", "literal", "User:u", "*", "write", "allow")

    assert hash(binding) == hash(
        api.AclBinding("topic", "t", "literal", "User:u", "*", "read", "allow")
    )
    assert binding != other
    assert binding < other
    assert binding != "t"
    assert repr(binding) == (
        "AclBinding(ResourceType.TOPIC,t,ResourcePatternType.LITERAL,User:u,*,"
        "AclOperation.READ,AclPermissionType.ALLOW)"
    )


@pytest.mark.parametrize(
    ("index", "value"),
    [(0, "any"), (2, "any"), (2, "match"), (5, "any"), (6, "any")],
)
def test_binding_refuses_values_that_only_filters_take(
    api: ModuleType, index: int, value: str
) -> None:
    args = ["topic", "t", "literal", "User:u", "*", "read", "allow"]
    args[index] = value

    with pytest.raises(ValueError):  # noqa: PT011
        api.AclBinding(*args)
    api.AclBindingFilter(*args)


@pytest.mark.parametrize("index", range(7))
def test_binding_refuses_none_and_unknown_values(api: ModuleType, index: int) -> None:
    args: list[Any] = ["topic", "t", "literal", "User:u", "*", "read", "allow"]
    texts = (1, 3, 4)
    for wrong, error in [
        (None, ValueError),
        (*((1, TypeError) if index in texts else ("no such thing", ValueError)),),
        (*((b"", TypeError) if index in texts else (object(), TypeError)),),
    ]:
        args[index] = wrong
        with pytest.raises(error):
            api.AclBinding(*args)


@pytest.mark.parametrize("index", range(7))
def test_filter_takes_none_for_its_texts(api: ModuleType, index: int) -> None:
    args: list[Any] = ["any", "t", "any", "User:u", "*", "any", "any"]
    args[index] = None

    if index in (1, 3, 4):
        assert api.AclBindingFilter(*args)._to_tuple()[index] is None
    else:
        with pytest.raises(ValueError):  # noqa: PT011
            api.AclBindingFilter(*args)
        args[index] = "unknown"
        with pytest.raises(ValueError):  # noqa: PT011
            api.AclBindingFilter(*args)


# -- offsets


def test_offset_specs_are_created_by_name(api: ModuleType) -> None:
    spec = api.OffsetSpec

    assert spec.earliest() is spec.earliest()
    assert spec.for_timestamp(5).timestamp == 5
    assert [item._value for item in (spec.latest(), spec.earliest(), spec.max_timestamp())] == [
        -1, -2, -3,
    ]  # fmt: skip
    assert spec(-1) is spec.latest()
    assert spec(7).timestamp == 7
    assert spec.max_timestamp() < spec.earliest() < spec.latest() < spec.for_timestamp(0)


@pytest.mark.ours
def test_offset_specs_are_compared_by_value(api: ModuleType) -> None:
    spec = api.OffsetSpec

    assert spec.for_timestamp(5) == spec.for_timestamp(5) != spec.for_timestamp(6)
    assert hash(spec.for_timestamp(5)) == hash(spec.for_timestamp(5))
    assert repr(spec.latest()) == "OffsetSpec.latest()"
    assert repr(spec.for_timestamp(5)) == "OffsetSpec.for_timestamp(5)"
    for item in (spec.latest(), spec.for_timestamp(5)):
        assert pickle.loads(pickle.dumps(item)) == item
    with pytest.raises(TypeError, match="timestamp"):
        spec.for_timestamp("now")
    with pytest.raises(ValueError, match="timestamp"):
        spec.for_timestamp(-5)


def test_results_keep_their_fields(kafka: ModuleType, api: ModuleType) -> None:
    info = api.ListOffsetsResultInfo(10, 20, -1)
    node = kafka.Node(1, "host", 9092)
    state, kind = kafka.ConsumerGroupState, kafka.ConsumerGroupType

    assert (info.offset, info.timestamp, info.leader_epoch) == (10, 20, None)
    assert api.ListOffsetsResultInfo(offset=1, timestamp=2, leader_epoch=3).leader_epoch == 3
    assert api.DeletedRecords(low_watermark=7).low_watermark == 7
    listing = api.ConsumerGroupListing("g", True, state=3, type="classic")
    assert (listing.state, listing.type) == (state.STABLE, kind.CLASSIC)
    assert not hasattr(api.ConsumerGroupListing("g", True), "state")
    assert api.ListConsumerGroupsResult(valid=[listing], errors=[]).valid == [listing]
    assert api.MemberAssignment(topic_partitions=None).topic_partitions == []
    member = api.MemberDescription("m", "c", "h", api.MemberAssignment([]))
    assert (member.member_id, member.client_id, member.host) == ("m", "c", "h")
    assert (member.group_instance_id, member.target_assignment) == (None, None)
    group = api.ConsumerGroupDescription("g", False, [member], "range", "stable", node, [3])
    assert (group.state, group.type) == (state.STABLE, kind.UNKNOWN)
    assert group.authorized_operations == [api.AclOperation.READ]
    assert (group.members, group.coordinator) == ([member], node)
    cluster = api.DescribeClusterResult(controller=node, nodes=[node])
    assert (cluster.cluster_id, cluster.authorized_operations) == (None, None)
    uuid = kafka.Uuid(1, 2)
    topic = api.TopicDescription("t", uuid, False, [], authorized_operations=["read"])
    assert (topic.name, topic.topic_id, topic.partitions) == ("t", uuid, [])
    assert topic.authorized_operations == [api.AclOperation.READ]
    metadata = api.GroupMetadata()
    assert (metadata.id, metadata.members, api.GroupMember().id) == (None, [], None)
    metadata.id = "g"
    assert (str(metadata), repr(metadata)) == ("g", "GroupMetadata(g)")


# -- credentials


def test_credentials_keep_their_fields(api: ModuleType) -> None:
    info = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = api.UserScramCredentialUpsertion("u", info, b"secret")
    deletion = api.UserScramCredentialDeletion("u", api.ScramMechanism.SCRAM_SHA_512)

    assert (info.mechanism, info.iterations) == (api.ScramMechanism.SCRAM_SHA_256, 4096)
    assert (upsertion.user, upsertion.password, upsertion.salt) == ("u", b"secret", None)
    assert upsertion.scram_credential_info is info
    assert (deletion.user, deletion.mechanism) == ("u", api.ScramMechanism.SCRAM_SHA_512)
    assert isinstance(upsertion, api.UserScramCredentialAlteration)
    assert isinstance(deletion, api.UserScramCredentialAlteration)
    described = api.UserScramCredentialsDescription("u", [info])
    assert (described.user, described.scram_credential_infos) == ("u", [info])


def test_secrets_are_not_in_the_repr(api: ModuleType) -> None:
    info = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = api.UserScramCredentialUpsertion("u", info, b"secret", salt=b"secret")

    assert "secret" not in repr(upsertion)
    assert "secret" not in str(upsertion)


@pytest.mark.ours
def test_results_have_a_repr(kafka: Any, api: Any) -> None:
    node = kafka.Node(1, "localhost", 9092)
    info = kafka.TopicPartitionInfo(0, node, [node], [])
    shown = repr(info)

    assert shown.startswith("TopicPartitionInfo(id=0, leader=Node(id=1, ")
    assert shown.endswith("isr=[])")
    assert repr(kafka.ConsumerGroupTopicPartitions("g")) == (
        "ConsumerGroupTopicPartitions(group_id='g', topic_partitions=None)"
    )
    # Unlike these, a new credential never shows its password.
    secret = api.UserScramCredentialUpsertion(
        "alice", api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_256, 4096), b"hidden"
    )
    assert "hidden" not in repr(secret)
