"""AdminClient refuses wrong arguments at once, before it sends a request."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from machine import WAIT_S


@pytest.fixture(scope="module")
def api(kafka: ModuleType) -> ModuleType:
    """The `admin` module of the module under test."""
    return importlib.import_module(f"{kafka.__name__}.admin")


@pytest.fixture(scope="module")
def admin(api: ModuleType) -> Iterator[Any]:
    """A client without a broker."""
    with api.AdminClient({"socket.timeout.ms": 10}) as admin:
        yield admin


@pytest.fixture(scope="module")
def made(kafka: ModuleType, api: ModuleType) -> SimpleNamespace:
    """One valid value of each kind."""
    info = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_256, 4096)
    change = api.ConfigEntry("a", "b", incremental_operation=api.AlterConfigOpType.SET)
    return SimpleNamespace(
        topic=api.NewTopic("t", 1, 1),
        partitions=api.NewPartitions("t", 2),
        resource=api.ConfigResource("topic", "t", incremental_configs=[change]),
        acl=api.AclBinding("topic", "t", "literal", "User:u", "*", "read", "allow"),
        filter=api.AclBindingFilter("topic", None, "any", None, None, "any", "any"),
        partition=kafka.TopicPartition("t", 0),
        spec=api.OffsetSpec.latest(),
        preferred=kafka.ElectionType.PREFERRED,
        group=kafka.ConsumerGroupTopicPartitions("g"),
        upsertion=api.UserScramCredentialUpsertion("u", info, b"secret"),
    )


def good_calls(kafka: ModuleType, made: SimpleNamespace) -> dict[str, tuple[Any, ...]]:
    """A valid call of each method that sends a request."""
    offsets = kafka.ConsumerGroupTopicPartitions("g", [kafka.TopicPartition("t", 0, 5)])
    return {
        "create_topics": ([made.topic],),
        "delete_topics": (["t"],),
        "create_partitions": ([made.partitions],),
        "describe_topics": (kafka.TopicCollection(["t"]),),
        "list_offsets": ({made.partition: made.spec},),
        "delete_records": ([made.partition],),
        "elect_leaders": (made.preferred, [made.partition]),
        "describe_configs": ([made.resource],),
        "alter_configs": ([made.resource],),
        "incremental_alter_configs": ([made.resource],),
        "create_acls": ([made.acl],),
        "describe_acls": (made.filter,),
        "delete_acls": ([made.filter],),
        "list_consumer_groups": (),
        "describe_consumer_groups": (["g"],),
        "delete_consumer_groups": (["g"],),
        "list_consumer_group_offsets": ([made.group],),
        "alter_consumer_group_offsets": ([offsets],),
        "describe_cluster": (),
        "describe_user_scram_credentials": (["u"],),
        "alter_user_scram_credentials": ([made.upsertion],),
    }


METHODS = """
    create_topics delete_topics create_partitions describe_topics list_offsets delete_records
    describe_configs alter_configs incremental_alter_configs create_acls describe_acls delete_acls
    list_consumer_groups describe_consumer_groups delete_consumer_groups
    list_consumer_group_offsets alter_consumer_group_offsets describe_cluster
    describe_user_scram_credentials alter_user_scram_credentials
"""
LISTS = """
    create_topics delete_topics create_partitions describe_configs alter_configs
    incremental_alter_configs create_acls delete_acls describe_consumer_groups
    delete_consumer_groups alter_user_scram_credentials
"""
# confluent_kafka's elect_leaders() raises SystemError for any option.
ELECTION = pytest.param("elect_leaders", marks=pytest.mark.ours)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize("method", [*METHODS.split(), ELECTION])
def test_request_without_a_broker_times_out(
    kafka: ModuleType, admin: Any, made: SimpleNamespace, method: str
) -> None:
    args = good_calls(kafka, made)[method]

    answer = getattr(admin, method)(*args, request_timeout=0.05)

    futures = list(answer.values()) if isinstance(answer, dict) else [answer]
    assert len(futures) == 1
    assert futures[0].running() or futures[0].done()
    assert not futures[0].cancel()
    if method == "list_consumer_groups":
        failure = futures[0].exception(WAIT_S) or kafka.KafkaException(
            futures[0].result().errors[0]
        )
    else:
        failure = futures[0].exception(WAIT_S)
    assert isinstance(failure, kafka.KafkaException)
    assert failure.args[0].code() in (kafka.KafkaError._TIMED_OUT, kafka.KafkaError._TRANSPORT)


@pytest.mark.parametrize("method", [*METHODS.split(), ELECTION])
def test_options_are_checked(
    kafka: ModuleType, admin: Any, made: SimpleNamespace, method: str
) -> None:
    args = good_calls(kafka, made)[method]
    call = getattr(admin, method)

    with pytest.raises(TypeError):
        call(*args, no_such_option=1)
    with pytest.raises(TypeError):
        call(*args, request_timeout="soon")
    with pytest.raises(ValueError, match="request_timeout"):
        call(*args, request_timeout=-5)
    with pytest.raises(ValueError, match="request_timeout: expected 0 to 3600 seconds, got 3601"):
        call(*args, request_timeout=3601)
    with pytest.raises(ValueError, match="request_timeout"):
        call(*args, request_timeout=10**400)


def test_error_for_text_that_is_not_utf8_names_its_argument(admin: Any) -> None:
    with pytest.raises(UnicodeEncodeError, match="in group_ids"):
        admin.describe_consumer_groups(["\ud800"])


def test_flags_are_bools(kafka: ModuleType, admin: Any, made: SimpleNamespace) -> None:
    with pytest.raises(TypeError, match="validate_only"):
        admin.create_topics([made.topic], validate_only="maybe")
    with pytest.raises(TypeError, match="validate_only"):
        admin.create_partitions([made.partitions], validate_only=1)
    with pytest.raises(TypeError, match="validate_only"):
        admin.incremental_alter_configs([made.resource], validate_only="maybe")
    with pytest.raises(TypeError, match="include_authorized_operations"):
        admin.describe_cluster(include_authorized_operations="maybe")
    with pytest.raises(TypeError, match="include_authorized_operations"):
        admin.describe_topics(kafka.TopicCollection(["t"]), include_authorized_operations=1)
    with pytest.raises(TypeError, match="include_authorized_operations"):
        admin.describe_consumer_groups(["g"], include_authorized_operations=1)
    with pytest.raises(TypeError, match="require_stable"):
        admin.list_consumer_group_offsets([made.group], require_stable=1)


def test_numbers_are_in_range(admin: Any, made: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="operation_timeout"):
        admin.create_topics([made.topic], operation_timeout=3601)
    with pytest.raises(TypeError):
        admin.describe_configs([made.resource], broker="one")
    with pytest.raises(ValueError, match="broker"):
        admin.describe_configs([made.resource], broker=-7)


@pytest.mark.parametrize(
    "method",
    LISTS.split(),
)
@pytest.mark.parametrize(
    "values",
    [
        None,
        "t",
        5,
        [],
        [None],
        # confluent_kafka sends a topic named "5".
        pytest.param([5], marks=pytest.mark.ours),
        pytest.param([b"t"], marks=pytest.mark.ours),
    ],
    ids=repr,
)
def test_lists_are_checked(admin: Any, method: str, values: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        getattr(admin, method)(values)


@pytest.mark.ours
@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("create_topics", "new_topics"),
        ("delete_topics", "topics"),
        ("create_partitions", "new_partitions"),
        ("describe_configs", "resources"),
        ("alter_configs", "resources"),
        ("incremental_alter_configs", "resources"),
        ("create_acls", "acls"),
        ("delete_acls", "acl_binding_filters"),
        ("describe_consumer_groups", "group_ids"),
        ("delete_consumer_groups", "group_ids"),
        ("alter_user_scram_credentials", "alterations"),
        ("list_consumer_group_offsets", "list_consumer_group_offsets_request"),
        ("alter_consumer_group_offsets", "alter_consumer_group_offsets_request"),
        ("delete_consumer_group_offsets", "delete_consumer_group_offsets_request"),
        ("list_offsets", "topic_partition_offsets"),
        ("describe_acls", "acl_binding_filter"),
        ("describe_topics", "topics"),
    ],
)
def test_wrong_types_name_the_argument(admin: Any, method: str, argument: str) -> None:
    with pytest.raises(TypeError, match=f"^{argument}:"):
        getattr(admin, method)(object())


def test_invalid_topics_are_refused(api: ModuleType, admin: Any) -> None:
    for wrong in (
        api.NewTopic("t", -2),
        api.NewTopic("t", 10**6),
        api.NewTopic("t", 1, -2),
        api.NewTopic("t", 1, 10**6),
        api.NewTopic("t", 2, replica_assignment=[[1]]),
        api.NewTopic("t", 1, 1, replica_assignment=[[1]]),
        api.NewTopic("t", 1, replica_assignment=[1]),
        api.NewTopic("t", 1, replica_assignment=[[]]),
        api.NewTopic("t", 1, replica_assignment=[["1"]]),
        api.NewTopic("t", 1, replica_assignment="1"),
        api.NewTopic("t", 1, replica_assignment=[[1] * 10_001]),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            admin.create_topics([wrong])
    for wrong in (
        api.NewPartitions("t", 0),
        api.NewPartitions("t", -5),
        api.NewPartitions("t", 10**6),
        api.NewPartitions("t", 1, replica_assignment=[[1], [1]]),
        api.NewPartitions("t", 1, replica_assignment=[1]),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            admin.create_partitions([wrong])


@pytest.mark.ours
def test_invalid_texts_are_refused(kafka: ModuleType, api: ModuleType, admin: Any) -> None:
    # librdkafka would copy such texts on its stack, cut them, or send invalid requests.
    tp = kafka.TopicPartition
    for wrong in ("a\0b", "x" * 40_000, "\ud800"):
        change = api.ConfigEntry(wrong, "v", incremental_operation=api.AlterConfigOpType.SET)
        for call in (
            lambda: admin.create_topics([api.NewTopic(wrong)]),  # noqa: B023
            lambda: admin.create_topics([api.NewTopic("t", config={wrong: "v"})]),  # noqa: B023
            lambda: admin.create_topics([api.NewTopic("t", config={"k": wrong})]),  # noqa: B023
            lambda: admin.create_partitions([api.NewPartitions(wrong, 5)]),  # noqa: B023
            lambda: admin.delete_topics([wrong]),  # noqa: B023
            lambda: admin.describe_topics(kafka.TopicCollection([wrong])),  # noqa: B023
            lambda: admin.describe_configs([api.ConfigResource("topic", wrong)]),  # noqa: B023
            lambda: admin.incremental_alter_configs(
                [api.ConfigResource("topic", "t", incremental_configs=[change])]  # noqa: B023
            ),
            lambda: admin.describe_consumer_groups([wrong]),  # noqa: B023
            lambda: admin.delete_consumer_groups([wrong]),  # noqa: B023
            lambda: admin.describe_user_scram_credentials([wrong]),  # noqa: B023
            lambda: admin.list_groups(wrong),  # noqa: B023
            lambda: admin.delete_records([tp(wrong, 0, 1)]),  # noqa: B023
            lambda: admin.list_consumer_group_offsets(
                [kafka.ConsumerGroupTopicPartitions(wrong)]  # noqa: B023
            ),
            lambda: admin.describe_acls(
                api.AclBindingFilter("any", wrong, "any", None, None, "any", "any")  # noqa: B023
            ),
        ):
            with pytest.raises(ValueError):  # noqa: PT011
                call()


@pytest.mark.ours
def test_empty_names_are_refused(kafka: ModuleType, api: ModuleType, admin: Any) -> None:
    for call in (
        lambda: admin.create_topics([api.NewTopic("")]),
        lambda: admin.delete_topics(["t", ""]),
        lambda: admin.create_partitions([api.NewPartitions("", 5)]),
        lambda: admin.describe_configs([api.ConfigResource("topic", "")]),
        lambda: admin.delete_records([kafka.TopicPartition("", 0, 1)]),
        lambda: admin.elect_leaders(kafka.ElectionType.PREFERRED, [kafka.TopicPartition("", 0)]),
    ):
        with pytest.raises(ValueError, match=r"empty name|without a name|no topic"):
            call()


def test_descriptions_of_topics_are_checked(kafka: ModuleType, admin: Any) -> None:
    for wrong in (["t"], None, "t", kafka.TopicCollection("t"), kafka.TopicCollection([None])):
        with pytest.raises((TypeError, ValueError)):
            admin.describe_topics(wrong)
    with pytest.raises(ValueError):  # noqa: PT011
        admin.describe_topics(kafka.TopicCollection([""]))


def test_offsets_to_look_up_are_checked(
    kafka: ModuleType, admin: Any, made: SimpleNamespace
) -> None:
    tp = kafka.TopicPartition
    for wrong in (None, [made.partition], {None: made.spec}, {"t": made.spec}, {tp("t", 0): None}):
        with pytest.raises(TypeError):
            admin.list_offsets(wrong)
    for wrong in ({tp("", 0): made.spec}, {tp("t", -1): made.spec}):
        with pytest.raises(ValueError):  # noqa: PT011
            admin.list_offsets(wrong)
    with pytest.raises(TypeError, match="isolation_level"):
        admin.list_offsets({made.partition: made.spec}, isolation_level=1)


def test_records_and_elections_are_checked(
    kafka: ModuleType, admin: Any, made: SimpleNamespace
) -> None:
    for wrong in (None, "t", made.partition, [None], ["t"]):
        with pytest.raises(TypeError):
            admin.delete_records(wrong)
    with pytest.raises(ValueError, match="negative"):
        admin.delete_records([kafka.TopicPartition("t")])
    for kind in (None, "PREFERRED", 0):
        with pytest.raises(TypeError):
            admin.elect_leaders(kind, [made.partition])
    for wrong in ("t", [None], ["t"], made.partition):
        with pytest.raises(TypeError):
            admin.elect_leaders(made.preferred, wrong)
    with pytest.raises(ValueError, match="negative"):
        admin.elect_leaders(made.preferred, [kafka.TopicPartition("t", -1)])


def test_changes_of_configuration_are_checked(api: ModuleType, admin: Any) -> None:
    kind = api.AlterConfigOpType
    entry = api.ConfigEntry

    def change(*changes: Any) -> None:
        resource = api.ConfigResource("topic", "t", incremental_configs=list(changes))
        admin.incremental_alter_configs([resource])

    for wrong in ("a", None, ("a", "b"), entry("a", "b")):
        with pytest.raises(TypeError):
            change(wrong)
    with pytest.raises((TypeError, ValueError)):
        change(entry("a", None, incremental_operation=kind.SET))
    with pytest.raises(ValueError, match="incremental"):
        change()


@pytest.mark.ours
def test_errors_do_not_quote_the_values_of_a_configuration(api: ModuleType, admin: Any) -> None:
    def change(name: str, value: str, kind: Any) -> None:
        entry = api.ConfigEntry(name, value, incremental_operation=kind)
        resource = api.ConfigResource("broker", "1", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])

    setting = api.AlterConfigOpType.SET
    for name, value, kind in [
        ("ssl.key.password", "hunter2\0", setting),
        ("ssl.key.password", "hunter2" * 5000, setting),
        ("ssl.key.password", "hunter2", "set"),
        ("", "hunter2", setting),
    ]:
        with pytest.raises((TypeError, ValueError)) as refused:
            change(name, value, kind)
        assert "hunter2" not in str(refused.value)
    with pytest.raises(ValueError, match="config: password") as refused:
        admin.create_topics([api.NewTopic("t", 1, config={"password": "hunter2\0"})])
    assert "hunter2" not in str(refused.value)


@pytest.mark.ours
def test_timeout_out_of_range_is_named_in_seconds(admin: Any) -> None:
    for seconds in (-1, 3601, 1e12):
        with pytest.raises(ValueError, match="request_timeout: expected 0 to 3600 s"):
            admin.describe_cluster(request_timeout=seconds)
    for seconds in (-5, 3601):
        with pytest.raises(ValueError, match="operation_timeout: expected 0 to 3600 seconds"):
            admin.delete_topics(["t"], operation_timeout=seconds)


def test_property_without_a_name_is_refused(api: ModuleType, admin: Any) -> None:
    """Otherwise the brokers would reset the whole configuration."""
    with pytest.raises(ValueError):  # noqa: PT011
        admin.alter_configs([api.ConfigResource("topic", "t", set_config={"": "1"})])


@pytest.mark.ours
def test_resource_altered_twice_is_refused(api: ModuleType, admin: Any) -> None:
    resource = api.ConfigResource("topic", "t", set_config={"a": "1"})
    with pytest.raises(ValueError, match="duplicate"):
        admin.alter_configs([resource, resource])


def test_configuration_may_be_named(api: ModuleType) -> None:
    with api.AdminClient(conf={"client.id": "named"}) as admin:
        assert len(admin) >= 0


def test_futures_get_their_outcomes_if_the_caller_changes_the_dict(
    kafka: ModuleType, admin: Any
) -> None:
    futures = admin.delete_topics(["a", "b", "c"], request_timeout=0.1)
    kept = list(futures.values())
    kept[0].add_done_callback(lambda _: futures.clear())
    futures["own"] = "entry"
    del futures["b"]

    for future in kept:
        assert isinstance(future.exception(WAIT_S), kafka.KafkaException)
    assert futures == {}


def test_acls_are_checked(api: ModuleType, admin: Any, made: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="duplicate"):
        admin.create_acls([made.acl, made.acl])
    with pytest.raises(ValueError, match="duplicate"):
        admin.delete_acls([made.filter, made.filter])
    for wrong in (None, "", made.acl, [made.filter]):
        with pytest.raises(TypeError):
            admin.describe_acls(wrong)
    with pytest.raises(ValueError):  # noqa: PT011
        admin.delete_acls([made.acl])


def test_group_filters_are_checked(kafka: ModuleType, admin: Any) -> None:
    for wrong in ("EMPTY", ["EMPTY"], [kafka.ConsumerGroupState.EMPTY], {"EMPTY"}, {5}):
        with pytest.raises(TypeError, match="states"):
            admin.list_consumer_groups(states=wrong)
        with pytest.raises(TypeError, match="types"):
            admin.list_consumer_groups(types=wrong)


@pytest.mark.parametrize(
    "method",
    [
        "list_consumer_group_offsets",
        "alter_consumer_group_offsets",
        pytest.param("delete_consumer_group_offsets", marks=pytest.mark.ours),
    ],
)
def test_offsets_of_groups_are_checked(kafka: ModuleType, admin: Any, method: str) -> None:
    tp, group = kafka.TopicPartition, kafka.ConsumerGroupTopicPartitions
    call = getattr(admin, method)
    altering = method == "alter_consumer_group_offsets"
    good = tp("t", 0, 5) if altering else tp("t", 0)

    for wrong in (None, group("g"), "g", ["g"], [None], [group(None, [good])], [group(5, [good])]):
        with pytest.raises(TypeError):
            call(wrong)
    for wrong in ([], [group("g", [good]), group("h", [good])], [group("", [good])]):
        with pytest.raises(ValueError):  # noqa: PT011
            call(wrong)
    for partitions in ([], [tp("", 0)], [tp("t", -1)]):
        with pytest.raises(ValueError):  # noqa: PT011
            call([group("g", partitions)])
    for partitions in ("t", [5], ["t"]):
        with pytest.raises(TypeError):
            call([group("g", partitions)])
    if altering:
        with pytest.raises(ValueError, match="offset"):
            call([group("g", [tp("t", 0)])])
        with pytest.raises(ValueError, match="topic_partitions"):
            call([group("g")])
    elif method == "list_consumer_group_offsets":
        with pytest.raises(ValueError, match="offset"):
            call([group("g", [tp("t", 0, 5)])])


def test_changes_of_credentials_are_checked(api: ModuleType, admin: Any) -> None:
    sha256 = api.ScramMechanism.SCRAM_SHA_256
    info = api.ScramCredentialInfo(sha256, 4096)
    upsert, delete = api.UserScramCredentialUpsertion, api.UserScramCredentialDeletion

    for wrong in (
        upsert(None, info, b"secret"),
        upsert(5, info, b"secret"),
        upsert("u", None, b"secret"),
        upsert("u", "info", b"secret"),
        upsert("u", api.ScramCredentialInfo("SCRAM-SHA-256", 4096), b"secret"),
        upsert("u", api.ScramCredentialInfo(sha256, "4096"), b"secret"),
        upsert("u", info, None),
        upsert("u", info, "secret"),
        upsert("u", info, b"secret", salt="secret"),
        delete("u", None),
        delete("u", "SCRAM-SHA-256"),
        delete(None, sha256),
        api.UserScramCredentialAlteration("u"),
    ):
        with pytest.raises(TypeError) as raised:
            admin.alter_user_scram_credentials([wrong])
        assert "secret" not in str(raised.value)
    for wrong in (
        upsert("", info, b"secret"),
        upsert("u", info, b""),
        upsert("u", info, b"secret", salt=b""),
        upsert("u", api.ScramCredentialInfo(sha256, 0), b"secret"),
        upsert("u", api.ScramCredentialInfo(sha256, -1), b"secret"),
        delete("", sha256),
    ):
        with pytest.raises(ValueError) as refused:  # noqa: PT011
            admin.alter_user_scram_credentials([wrong])
        assert "secret" not in str(refused.value)


def test_users_to_describe_are_checked(admin: Any) -> None:
    for wrong in ("u", 5, [None], [5], {"u"}):
        with pytest.raises(TypeError):
            admin.describe_user_scram_credentials(wrong)
    with pytest.raises(ValueError):  # noqa: PT011
        admin.describe_user_scram_credentials([""])


@pytest.mark.ours
def test_unknown_mechanism_fails(kafka: ModuleType, api: ModuleType, admin: Any) -> None:
    unknown = api.ScramMechanism.UNKNOWN
    alteration = api.UserScramCredentialDeletion("u", unknown)

    (future,) = admin.alter_user_scram_credentials([alteration]).values()

    assert future.exception(WAIT_S).args[0] == kafka.KafkaError._INVALID_ARG


def test_synchronous_calls_time_out(kafka: ModuleType, admin: Any) -> None:
    with pytest.raises(kafka.KafkaException):
        admin.list_topics(timeout=0.1)
    with pytest.raises(kafka.KafkaException):
        admin.list_groups(timeout=0.1)
    with pytest.raises(TypeError):
        admin.list_groups(group=5)
    assert admin.poll(0.01) == 0


def test_configuration_is_given_in_three_ways(kafka: ModuleType, api: ModuleType) -> None:
    for args, kwargs in (
        (({"client.id": "a"},), {}),
        (({"client.id": "a"},), {"error_cb": print}),
        (({},), {"logger": None} if kafka.__name__ == "cykafka" else {}),
    ):
        with api.AdminClient(*args, **kwargs):
            pass
    with pytest.raises(TypeError):
        api.AdminClient()
    with pytest.raises(kafka.KafkaException):
        api.AdminClient({"no.such.property": 1})


@pytest.mark.ours
def test_configuration_errors_name_the_client(kafka: ModuleType, api: ModuleType) -> None:
    with pytest.raises(kafka.KafkaException, match=r"bootstrap\.servers"):
        api.AdminClient({"bootstrap.server": "x"})
    with pytest.raises(TypeError, match="AdminClient"):
        api.AdminClient(5)
    with api.AdminClient(**{"client.id": "mine"}) as admin:
        assert "mine" in repr(admin)
        assert admin
        assert len(admin) == 0


def test_election_type_has_a_name_with_an_underscore(kafka: ModuleType, api: ModuleType) -> None:
    assert api._ElectionType is kafka.ElectionType
    assert api._TopicPartition is kafka.TopicPartition
    for name in (
        "ConsumerGroupState", "ConsumerGroupTopicPartitions", "ConsumerGroupType",
        "IsolationLevel", "TopicCollection",
    ):  # fmt: skip
        assert getattr(api, f"_{name}") is getattr(kafka, name)


@pytest.mark.parametrize("request_", [None, "x", 5, {}])
def test_delete_records_without_a_list_raises_confluents_error(admin: Any, request_: Any) -> None:
    name = type(request_).__name__
    with pytest.raises(TypeError, match=f"^Expected Request to be a list, got '{name}'"):
        admin.delete_records(request_)


def test_delete_records_of_a_wrong_type_raises_confluents_error(admin: Any) -> None:
    words = "^Element of the request list must be of type 'TopicPartition' got 'int'"
    with pytest.raises(TypeError, match=words):
        admin.delete_records([1])


@pytest.mark.parametrize("partitions", ["x", 5, {}])
def test_elect_leaders_without_a_list_raises_the_error_of_confluent_kafka(
    kafka: ModuleType, admin: Any, partitions: Any
) -> None:
    words = f"^Expected 'partitions' to be a list, got '{type(partitions).__name__}'"
    with pytest.raises(TypeError, match=words):
        admin.elect_leaders(kafka.ElectionType.PREFERRED, partitions)


def test_elect_leaders_of_a_wrong_type_raises_confluents_error(
    kafka: ModuleType, admin: Any
) -> None:
    words = "^Element of the 'partitions' list must be of type 'TopicPartition' got 'NoneType'"
    with pytest.raises(TypeError, match=words):
        admin.elect_leaders(kafka.ElectionType.PREFERRED, [None])
    words = "^Expected 'election_type' to be of type 'ElectionType'"
    with pytest.raises(TypeError, match=words):
        admin.elect_leaders("PREFERRED", [None])


@pytest.mark.parametrize("replicas", [[[0]], [[0], [1]], [], "x", [0], [["x"]], [[]]])
def test_replica_assignment_with_a_replication_factor_is_refused(
    api: ModuleType, admin: Any, replicas: Any
) -> None:
    topic = api.NewTopic("t", 1, replication_factor=1, replica_assignment=replicas)

    words = "^replication_factor and replica_assignment are mutually exclusive"
    with pytest.raises(ValueError, match=words):
        admin.create_topics([topic])


@pytest.mark.parametrize("replicas", [[[0], [1]], [], "x", [0], [["x"]], [[]]])
def test_wrong_replica_assignment_raises_the_error_of_confluent_kafka(
    api: ModuleType, admin: Any, replicas: Any
) -> None:
    words = "^replica_assignment must be a list of int lists with an outer size of num_partitions"
    with pytest.raises(ValueError, match=words):
        admin.create_topics([api.NewTopic("t", 1, replica_assignment=replicas)])
