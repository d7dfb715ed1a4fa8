"""`cykafka.testing.MockCluster`: topics, and the effect of each fault on clients."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from fixture_types import RunScript
from machine import WAIT_S, wake_up_s
from relay import Relay, relay_before

from cykafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    DeliveryError,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from cykafka.admin import AdminClient, OffsetSpec
from cykafka.testing import MockCluster, MockRequest

pytestmark = pytest.mark.ours

OFTEN = {"heartbeat.interval.ms": 200}
NOT_LEADER = KafkaError.NOT_LEADER_FOR_PARTITION

Factory = Callable[..., MockCluster]


def producer(cluster: MockCluster | Relay, **config: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 0,
            "topic.metadata.refresh.fast.interval.ms": 10,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "log_level": 0,
        }
        | {key.replace("_", "."): value for key, value in config.items()}
    )


def outcomes(client: Producer, topic: str, count: int = 1, **options: Any) -> list[KafkaError]:
    """The errors (None: delivered) of that many records, sent one after the other."""
    found: list[Any] = []
    for _ in range(count):
        client.produce(topic, b"v", on_delivery=lambda error, _: found.append(error), **options)
        assert client.flush(WAIT_S) == 0
    return found


def leaders(client: Producer, topic: str) -> dict[int, int]:
    partitions = client.list_topics(topic, WAIT_S).topics[topic].partitions
    return {number: partition.leader for number, partition in partitions.items()}


# -- topics and addresses


def test_bootstrap_servers_one_per_broker(mock_cluster_factory: Factory) -> None:
    cluster = mock_cluster_factory(brokers=3)
    assert cluster.brokers == 3
    addresses = cluster.bootstrap_servers.split(",")
    assert len(set(addresses)) == 3
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert cluster.bootstrap_servers in repr(cluster)


def test_create_topic_partitions_and_replicas(mock_cluster_factory: Factory) -> None:
    cluster = mock_cluster_factory(brokers=3)
    cluster.create_topic("t", partitions=5, replication_factor=2)
    client = producer(cluster)
    partitions = client.list_topics("t", WAIT_S).topics["t"].partitions
    assert len(partitions) == 5
    assert {len(partition.replicas) for partition in partitions.values()} == {2}
    client.close()


def test_create_topic_twice_raises(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t")
    with pytest.raises(KafkaException) as error:
        mock_cluster.create_topic("t")
    assert error.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert "'t'" in error.value.args[0].str()


def test_cluster_from_other_process(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=1)
    source = (
        "import sys, cykafka; producer = cykafka.Producer({'bootstrap.servers': sys.argv[1]});"
        "producer.produce('t', b'from elsewhere'); assert producer.flush(10) == 0"
    )
    command = [sys.executable, "-c", source, mock_cluster.bootstrap_servers]
    subprocess.run(command, check=True, timeout=60)
    consumer = Consumer(
        {
            "bootstrap.servers": mock_cluster.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.value() == b"from elsewhere"
    consumer.close()


def test_first_join_does_not_wait(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t")
    assigned = threading.Event()
    consumer = Consumer({"bootstrap.servers": mock_cluster.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["t"], on_assign=lambda *_: assigned.set())
    begin = time.monotonic()
    while not assigned.is_set() and time.monotonic() < begin + WAIT_S:
        consumer.poll(0.05)
    assert assigned.is_set()
    assert time.monotonic() - begin < 2.5  # with Kafka's default it takes more than 3 s
    consumer.close()


# -- faults


def test_push_request_errors_in_order(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=1)
    client = producer(mock_cluster, retries=0)
    refused = KafkaError.RECORD_LIST_TOO_LARGE
    mock_cluster.push_request_errors(
        "Produce", [KafkaError.MSG_SIZE_TOO_LARGE, 0, KafkaError(refused)]
    )
    codes = [error and error.code() for error in outcomes(client, "t", 4)]
    assert codes == [KafkaError.MSG_SIZE_TOO_LARGE, None, refused, None]
    client.close()


def test_push_request_errors_for_one_broker(mock_cluster_factory: Factory) -> None:
    cluster = mock_cluster_factory(brokers=2)
    cluster.create_topic("t", partitions=2)
    cluster.set_partition_leader("t", 0, 1)
    cluster.set_partition_leader("t", 1, 2)
    client = producer(cluster, retries=0)
    cluster.push_request_errors(0, [KafkaError.MSG_SIZE_TOO_LARGE], broker=2)
    assert outcomes(client, "t", partition=0) == [None]
    (error,) = outcomes(client, "t", partition=1)
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    client.close()


def test_push_request_errors_delayed(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=1)
    client = producer(mock_cluster, retries=0)
    assert outcomes(client, "t") == [None]
    mock_cluster.push_request_errors("Produce", [0], broker=1, rtt_ms=300)
    begin = time.monotonic()
    assert outcomes(client, "t") == [None]
    assert time.monotonic() - begin >= 0.3
    client.close()


def test_push_request_errors_retriable_is_retried(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=1)
    mock_cluster.start_request_tracking()
    client = producer(mock_cluster)
    mock_cluster.push_request_errors("Produce", [NOT_LEADER] * 2)
    assert outcomes(client, "t") == [None]
    assert len(mock_cluster.requests("Produce")) == 3
    client.close()


def test_clear_request_errors(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=1)
    client = producer(mock_cluster, retries=0)
    for clear in (None, "Produce", 0):
        mock_cluster.push_request_errors("Produce", [KafkaError.MSG_SIZE_TOO_LARGE] * 3)
        mock_cluster.clear_request_errors(clear)
        assert outcomes(client, "t") == [None]
    client.close()


def test_set_topic_error(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t")
    client = producer(mock_cluster)
    mock_cluster.set_topic_error("t", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    error = client.list_topics("t", WAIT_S).topics["t"].error
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    mock_cluster.set_topic_error("t", 0)
    assert client.list_topics("t", WAIT_S).topics["t"].error is None
    client.close()


def test_topic_deleted_before_an_answer(mock_cluster_factory: Factory) -> None:
    cluster = mock_cluster_factory(brokers=2)
    client = producer(
        cluster, topic_metadata_refresh_interval_ms=100, topic_metadata_propagation_max_ms=0
    )
    for broker, topic in ((1, "deleted"), (2, "other")):
        cluster.create_topic(topic, partitions=1)
        cluster.set_partition_leader(topic, 0, broker)
        assert outcomes(client, topic) == [None]  # connects the broker
    cluster.push_request_errors(
        "Produce", [KafkaError.UNKNOWN_TOPIC_OR_PART], broker=1, rtt_ms=2000
    )
    cluster.start_request_tracking()
    delivery = client.publish("deleted", [b"v"])
    cluster.wait_for_requests("Produce", 1)
    # From the other broker the client learns it before the leader answers.
    cluster.set_topic_error("deleted", KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(DeliveryError) as caught:
        delivery.wait(WAIT_S)
    assert caught.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
    client.close()


def test_set_partition_leader(mock_cluster_factory: Factory) -> None:
    cluster = mock_cluster_factory(brokers=2)
    cluster.create_topic("t", partitions=1)
    cluster.start_request_tracking()
    client = producer(cluster)
    for leader in (1, 2, 1):
        cluster.set_partition_leader("t", 0, leader)
        assert leaders(client, "t") == {0: leader}
        assert outcomes(client, "t") == [None]
        assert cluster.requests("Produce")[-1].broker == leader
    client.close()


def test_set_partition_leader_none(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=1)
    mock_cluster.set_partition_leader("t", 0, None)
    client = producer(mock_cluster)
    assert leaders(client, "t") == {0: -1}
    client.close()


@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_partition_loses_its_leader_under_its_clients(run_script: RunScript, client: str) -> None:
    done = run_script(
        """
        import sys
        from cykafka.testing import MockCluster
        with MockCluster() as cluster:
            cluster.create_topic("t", partitions=1)
            config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
            producer = kafka.Producer(config)
            consumer = kafka.Consumer({**config, "fetch.wait.max.ms": 10})
            consumer.assign([kafka.TopicPartition("t", 0, 0)])
            producer.produce("t", b"x")
            first = consumer.poll(20)
            if sys.argv[1] == "producer":
                consumer.unassign()
            cluster.set_partition_leader("t", 0, None)
            cluster.start_request_tracking()
            if sys.argv[1] == "producer":
                producer.produce("t", b"y")
            # librdkafka 2.15 crashes when it answers this request.
            cluster.wait_for_requests({"producer": "Produce", "consumer": "Fetch"}[sys.argv[1]])
            cluster.set_partition_leader("t", 0, 1)
            if sys.argv[1] == "consumer":
                producer.produce("t", b"y")
            assert producer.flush(20) == 0
            consumer.assign([kafka.TopicPartition("t", 0, 1)])
            print(first.value(), consumer.poll(20).value())
            consumer.close()
            producer.close()
        """,
        client,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "b'x' b'y'\n"), done.stderr


def test_member_that_joins_again_on_a_new_connection(run_script: RunScript) -> None:
    """The mock cluster sees the new request before the end of the old connection."""
    done = run_script(
        """
        import socket, struct
        from cykafka.testing import MockCluster

        SESSION_MS = 3000  # the mock cluster also waits so long for other members

        def text(value):
            return struct.pack(">h", len(value)) + value

        def sized(value):
            return struct.pack(">i", len(value)) + value

        def join(connection, member):
            head = struct.pack(">hhi", 11, 0, 1) + text(b"client")
            protocols = struct.pack(">i", 1) + text(b"range") + sized(b"")
            body = text(b"g") + struct.pack(">i", SESSION_MS) + text(member) + text(b"consumer")
            connection.sendall(sized(head + body + protocols))

        def joined(connection):
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            answer = connection.recv(size, socket.MSG_WAITALL)
            names, at = [], 4 + 2 + 4
            for _ in ("protocol", "leader", "member"):
                (size,) = struct.unpack_from(">h", answer, at)
                names.append(answer[at + 2 : at + 2 + size])
                at += 2 + size
            return names[2]

        with MockCluster() as cluster:
            address = "127.0.0.1", int(cluster.bootstrap_servers.rpartition(":")[2])
            old, new = socket.create_connection(address), socket.create_connection(address)
            join(old, b"")
            member = joined(old)
            cluster.start_request_tracking()
            join(old, member)
            cluster.wait_for_requests("JoinGroup", 1)
            join(new, member)
            assert joined(new) == member
            old.close()
            new.close()
        print("joined")
        """,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "joined\n"), done.stderr


def test_set_partition_leader_unknown_partition(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=2)
    for call in (mock_cluster.set_partition_leader, mock_cluster.set_partition_follower):
        with pytest.raises(KafkaException, match="'t' \\[2\\]"):
            call("t", 2, 1)


def test_set_partition_follower_is_fetched_from(mock_cluster_factory: Factory) -> None:
    cluster = mock_cluster_factory(brokers=2)
    cluster.create_topic("t", partitions=1, replication_factor=2)
    cluster.set_partition_leader("t", 0, 1)
    cluster.set_partition_follower("t", 0, 2)
    client = producer(cluster)
    assert outcomes(client, "t") == [None]
    client.close()
    cluster.start_request_tracking()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "client.rack": "r",
        }
    )
    consumer.subscribe(["t"])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.error() is None
    assert 2 in {request.broker for request in cluster.requests("Fetch")}
    consumer.close()


@pytest.mark.parametrize("broker", [1, 2])
def test_set_coordinator(mock_cluster_factory: Factory, broker: int) -> None:
    cluster = mock_cluster_factory(brokers=2)
    cluster.create_topic("t")
    cluster.set_coordinator("group", "g", broker)
    cluster.start_request_tracking()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["t"])
    consumer.poll(0)
    assert {request.broker for request in cluster.wait_for_requests("JoinGroup")} == {broker}
    consumer.close()


def test_close_while_joining_ends_despite_calls_in_its_callback(
    mock_cluster_factory: Factory,
) -> None:
    """librdkafka 2.15 does not answer a call that arrives just after it left the group. The
    callback makes calls all the time, so that one of thirty members hits that moment."""
    cluster = mock_cluster_factory()
    cluster.create_topic("t", partitions=1)
    answers = []
    for i in range(30):
        closing = threading.Event()

        def on_assign(consumer: Any, _: Any, closing: threading.Event = closing) -> None:
            while closing.is_set():
                try:
                    consumer.assignment()
                except KafkaException as exception:
                    answers.append(exception.args[0].code())
                    return

        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"joining-{i}"}
        )
        cluster.start_request_tracking()
        consumer.subscribe(["t"], on_assign=on_assign)
        consumer.poll(0)
        cluster.wait_for_requests("JoinGroup")
        if i % 2:
            cluster.wait_for_requests("SyncGroup")
        closing.set()
        consumer.close()
        cluster.stop_request_tracking()
    assert set(answers) == {KafkaError._DESTROY}


@pytest.mark.parametrize(
    ("protocol", "last", "count"),
    [
        ({"partition.assignment.strategy": "range", **OFTEN}, "Heartbeat", 1),
        ({"partition.assignment.strategy": "cooperative-sticky", **OFTEN}, "Heartbeat", 1),
        ({"group.protocol": "consumer"}, "ConsumerGroupHeartbeat", 2),
    ],
    ids=["eager", "cooperative", "kip-848"],
)
def test_unclosed_consumer_is_freed_with_an_unpolled_assignment(
    mock_cluster_factory: Factory, protocol: dict[str, str], last: str, count: int
) -> None:
    cluster = mock_cluster_factory(group_consumer_heartbeat_interval_ms=200)
    cluster.create_topic("t", partitions=2)
    for number in range(3):
        cluster.start_request_tracking()
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"g-{number}", **protocol}
        )
        consumer.subscribe(["t"])
        # This request follows the one whose answer has the assignment.
        cluster.wait_for_requests(last, count, WAIT_S)
        cluster.stop_request_tracking()
        with pytest.warns(ResourceWarning):
            del consumer  # librdkafka 2.15 would hang here


def test_partition_reassigned_while_it_stops_does_not_crash(
    run_script: RunScript, mock_cluster_factory: Factory
) -> None:
    cluster = mock_cluster_factory()
    cluster.create_topic("t", partitions=2)
    done = run_script(
        """
        import sys
        servers = sys.argv[1]
        with kafka.Producer({"bootstrap.servers": servers}) as producer:
            for partition in (0, 1):
                producer.produce("t", b"x", partition=partition)
        first, second = ([kafka.TopicPartition("t", partition, 0)] for partition in (0, 1))
        config = {"bootstrap.servers": servers, "group.id": "g", "fetch.wait.max.ms": 10}
        with kafka.Consumer(config) as consumer:
            # librdkafka 2.15 aborts within a hundred rounds.
            for _ in range(300):
                consumer.assign(first + second)
                assert consumer.poll(20) is not None
                consumer.assign(second)
                consumer.assign(first)
            consumer.assign(second)
            message = consumer.poll(20)
            print(message.partition(), message.offset())
        """,
        cluster.bootstrap_servers,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "1 0\n"), done.stderr


def test_offset_request_to_the_wrong_coordinator_is_an_error(
    mock_cluster_factory: Factory,
) -> None:
    cluster = mock_cluster_factory()
    cluster.push_request_errors("OffsetFetch", [KafkaError.NOT_COORDINATOR])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]).values()
    # librdkafka 2.15 crashes here: the group that should look up the coordinator is NULL.
    with pytest.raises(KafkaException, match="repeat the request") as caught:
        future.result(WAIT_S)
    assert caught.value.args[0].code() == KafkaError.NOT_COORDINATOR
    assert caught.value.args[0].retriable()
    admin.close()


@pytest.mark.parametrize("api", ["OffsetFetch", "OffsetCommit"])
def test_admin_finds_a_moved_coordinator(mock_cluster_factory: Factory, api: str) -> None:
    cluster = mock_cluster_factory(brokers=2)
    cluster.create_topic("t", partitions=1)
    cluster.start_request_tracking()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    place = TopicPartition("t", 0)
    if api == "OffsetCommit":
        place.offset = 1
    ask = {
        "OffsetCommit": admin.alter_consumer_group_offsets,
        "OffsetFetch": admin.list_consumer_group_offsets,
    }[api]

    def answer() -> None:
        (future,) = ask([ConsumerGroupTopicPartitions("g", [place])]).values()
        errors = [partition.error for partition in future.result(WAIT_S).topic_partitions]
        if errors != [None]:
            raise KafkaException(errors[0])

    cluster.set_coordinator("group", "g", 1)
    answer()
    cluster.set_coordinator("group", "g", 2)
    cluster.push_request_errors(api, [KafkaError.NOT_COORDINATOR], broker=1)
    with pytest.raises(KafkaException):
        answer()
    answer()
    assert [request.broker for request in cluster.requests(api)] == [1, 1, 2]
    admin.close()


def test_group_request_that_has_timed_out(
    run_script: RunScript, mock_cluster_factory: Factory
) -> None:
    done = run_script(
        """
        from cykafka.admin import AdminClient
        from cykafka.testing import MockCluster

        def offsets(timeout_s):
            group = kafka.ConsumerGroupTopicPartitions("g")
            found = admin.list_consumer_group_offsets([group], request_timeout=timeout_s)
            return found["g"]

        with MockCluster() as cluster:
            servers = {"bootstrap.servers": cluster.bootstrap_servers}
            with AdminClient({**servers, "log_level": 0}) as admin:
                offsets(20).result(20)
                cluster.broker_down()
                # The first one may still find the connection, and lose it.
                while offsets(1).exception(20).args[0].name() != "_TIMED_OUT":
                    pass
                cluster.broker_up()
                print(offsets(20).result(20).group_id)  # librdkafka 2.15 aborts here
        """,
        timeout=90,
    )
    assert (done.returncode, done.stdout) == (0, "g\n"), done.stderr


@pytest.mark.parametrize("api", ["OffsetDelete", "DeleteGroups"])
def test_group_requests_that_the_broker_does_not_know(run_script: RunScript, api: str) -> None:
    done = run_script(
        """
        import sys
        from cykafka.admin import AdminClient
        from cykafka.testing import MockCluster

        with MockCluster() as cluster:
            with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                found = kafka.ConsumerGroupTopicPartitions("g", [kafka.TopicPartition("t", 0)])
                # librdkafka 2.15 aborts at the second or third one.
                for _ in range(5):
                    if sys.argv[1] == "OffsetDelete":
                        future = admin.delete_consumer_group_offsets([found])["g"]
                    else:
                        future = admin.delete_consumer_groups(["g"])["g"]
                    print(future.exception(20).args[0].name())
        """,
        api,
    )
    assert (done.returncode, done.stdout) == (0, "_UNSUPPORTED_FEATURE\n" * 5), done.stderr


def test_request_to_a_broker_that_is_down_uses_no_cpu(mock_cluster_factory: Factory) -> None:
    cluster = mock_cluster_factory()
    cluster.create_topic("t", partitions=1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    wanted = {TopicPartition("t", 0): OffsetSpec.latest()}
    (found,) = admin.list_offsets(wanted).values()
    found.result(WAIT_S)  # now the client knows the leader
    cluster.broker_down()
    while True:
        (found,) = admin.list_offsets(wanted, request_timeout=60).values()
        before = time.process_time()  # of all threads
        try:
            found.result(2)
        except TimeoutError:
            break
        except KafkaException:
            pass  # the request still found the connection, and lost it
    used = time.process_time() - before
    admin.close()
    assert used < 0.5


def test_broker_down_and_up(mock_cluster_factory: Factory) -> None:
    cluster = mock_cluster_factory()
    cluster.create_topic("t", partitions=1)
    servers = cluster.bootstrap_servers
    client = producer(cluster, message_timeout_ms=2000)
    assert outcomes(client, "t") == [None]
    for broker in (1, None):
        cluster.broker_down(broker)
        (error,) = outcomes(client, "t")
        assert error.code() == KafkaError._MSG_TIMED_OUT
        cluster.broker_up(broker)
        patient = producer(cluster)
        assert outcomes(patient, "t") == [None]
        patient.close()
    assert cluster.bootstrap_servers == servers
    client.close()


@pytest.mark.alone
def test_message_times_out_between_reconnects(mock_cluster_factory: Factory) -> None:
    """librdkafka 2.15 looks for late messages only when it connects to their broker again."""
    cluster = mock_cluster_factory()
    cluster.create_topic("t", partitions=1)
    # The pause between reconnects grows up to 10 s.
    client = producer(cluster, message_timeout_ms=4000, reconnect_backoff_ms=100)
    with closing(client):
        assert outcomes(client, "t") == [None]
        cluster.broker_down()
        began = time.monotonic()
        (error,) = outcomes(client, "t")
        assert error.code() == KafkaError._MSG_TIMED_OUT
        assert time.monotonic() - began < 6 + 20 * wake_up_s()


def test_client_continues_after_metadata_without_brokers(mock_cluster: MockCluster) -> None:
    """librdkafka then forgets all brokers, and connects to bootstrap.servers again (KIP-899)."""
    mock_cluster.create_topic("t", partitions=1)
    with (
        relay_before(mock_cluster.bootstrap_servers) as relay,
        closing(producer(relay, message_timeout_ms=5000)) as client,
    ):
        assert outcomes(client, "t") == [None]
        relay.names_none = True
        assert client.list_topics("t", WAIT_S).brokers == {}
        relay.names_none = False
        assert outcomes(client, "t") == [None]
        assert set(client.list_topics("t", WAIT_S).brokers) == {1}


@pytest.mark.parametrize("question", ["list_topics", "cluster_id"])
def test_request_survives_first_metadata_without_brokers(
    mock_cluster: MockCluster, question: str
) -> None:
    """A cluster that has just started may answer so. librdkafka then does not ask again soon."""
    with relay_before(mock_cluster.bootstrap_servers) as relay:
        relay.names_none = True
        with closing(Producer({"bootstrap.servers": relay.bootstrap_servers})) as client:
            assert relay.none_named.wait(WAIT_S)
            relay.names_none = False
            assert getattr(client, question)(timeout=WAIT_S)


def test_set_rtt(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=1)
    client = producer(mock_cluster)
    assert outcomes(client, "t") == [None]
    for broker in (None, 1):
        mock_cluster.set_rtt(250, broker)
        begin = time.monotonic()
        assert outcomes(client, "t") == [None]
        assert time.monotonic() - begin >= 0.25
    mock_cluster.set_rtt(0)
    client.close()


def test_set_api_versions_hides_a_request(mock_cluster: MockCluster) -> None:
    mock_cluster.set_api_versions("InitProducerId", -1, -1)
    mock_cluster.start_request_tracking()
    client = producer(mock_cluster, transactional_id="x")
    with pytest.raises(KafkaException):
        client.init_transactions(1)
    assert mock_cluster.requests("ApiVersions")
    assert mock_cluster.requests("InitProducerId") == []
    client.close()


# -- requests


def test_requests_tracked_in_order(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=1)
    client = producer(mock_cluster)
    before = time.monotonic()
    mock_cluster.start_request_tracking()
    assert outcomes(client, "t", 3) == [None] * 3
    produced = mock_cluster.wait_for_requests("Produce", 3)
    assert [request[:3] for request in produced] == [(1, "Produce", 0)] * 3
    stamps = [request.timestamp for request in mock_cluster.requests()]
    assert stamps == sorted(stamps)
    assert before <= stamps[0] <= stamps[-1] <= time.monotonic()
    assert isinstance(produced[0], MockRequest)
    mock_cluster.clear_requests()
    assert mock_cluster.requests("Produce") == []
    mock_cluster.stop_request_tracking()
    with pytest.raises(RuntimeError, match="start_request_tracking"):
        mock_cluster.requests()
    client.close()


def test_wait_for_requests_timeout_reports_the_count(mock_cluster: MockCluster) -> None:
    mock_cluster.start_request_tracking()
    with pytest.raises(TimeoutError, match=r"0 of 2 Produce requests within 0\.02 s"):
        mock_cluster.wait_for_requests("Produce", 2, timeout=0.02)
