"""KafkaClient: metadata, requests and their errors."""

from __future__ import annotations

import copy
import multiprocessing
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import RunScript, Unique
from live import live_before

import cykafka.testing
from cykafka.admin import AdminClient, NewPartitions
from cykafka.compat.kafka_python import (
    KafkaClient,
    KafkaConnection,
    SimpleConsumer,
    create_gzip_message,
    create_message,
    create_snappy_message,
)
from cykafka.compat.kafka_python.common import (
    BrokerMetadata,
    ConnectionError,
    ConsumerFetchSizeTooSmall,
    FailedPayloadsError,
    FetchRequest,
    InvalidMessageError,
    KafkaUnavailableError,
    MessageSizeTooLargeError,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetOutOfRangeError,
    OffsetRequest,
    ProduceRequest,
    ProduceResponse,
    TopicAndPartition,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from cykafka.compat.kafka_python.protocol import KafkaProtocol

WAIT_S = 60
KIND = {"gzip": create_gzip_message, "snappy": create_snappy_message}


def offset_of(client: KafkaClient, topic: str, partition: int, time_ms: int = -1) -> int:
    (response,) = client.send_offset_request([OffsetRequest(topic, partition, time_ms, 1)])
    offset: int = response.offsets[0]
    return offset


# -- metadata


def test_metadata_names_the_brokers_topics_and_leaders(
    client: KafkaClient, cluster: Any, topic: str
) -> None:
    host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
    assert BrokerMetadata(1, host.encode(), int(port)) in client.brokers.values()
    client.load_metadata_for_topics(topic)
    assert topic.encode() in client.topics
    assert client.has_metadata_for_topic(topic)
    assert client.get_partition_ids_for_topic(topic.encode()) == [0, 1, 2, 3]
    leader = client.topics_to_brokers[TopicAndPartition(topic.encode(), 2)]
    assert leader in client.brokers.values()
    partition = client.topic_partitions[topic.encode()][2]
    assert (partition.error, partition.replicas, partition.isr) == (0, (1,), (1,))
    client.reset_topic_metadata(topic.encode())
    assert not client.has_metadata_for_topic(topic)
    client.reset_all_metadata()
    assert client.topics == []


def test_metadata_request_for_some_topics(client: KafkaClient, cluster: Any, topic: str) -> None:
    other = f"{topic}-other"
    cluster.create_topic(other, 1)
    response = client.send_metadata_request([topic.encode(), other])
    assert [(topic.topic, len(topic.partitions)) for topic in response.topics] == [
        (topic.encode(), 4),
        (other.encode(), 1),
    ]


def test_topic_is_created_on_demand(client: KafkaClient, unique: Unique) -> None:
    name = unique("on-demand")
    client.ensure_topic_exists(name, timeout=30)
    assert client.get_partition_ids_for_topic(name) != []


def test_name_that_no_topic_can_have_is_an_error(client: KafkaClient) -> None:
    response = client.send_metadata_request([b"not/a/topic"])
    assert response.topics[0].error == 17
    with pytest.raises(UnknownError):
        client.load_metadata_for_topics(b"not/a/topic")


def test_unreachable_brokers_are_unavailable_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    begun = time.monotonic()
    with pytest.raises(KafkaUnavailableError, match="refused"):
        KafkaClient(f"127.0.0.1:{port}")
    assert time.monotonic() - begun < 10


def test_silent_broker_is_unavailable_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(KafkaUnavailableError):
            KafkaClient(f"127.0.0.1:{port}", timeout=2)
        assert time.monotonic() - begun < 20


def test_one_of_several_hosts_is_enough(cluster: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    client = KafkaClient([f"127.0.0.1:{port}", cluster.bootstrap_servers.split(",")[0]])
    assert client.brokers
    client.close()


def test_impossible_port_is_not_tried(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    host, port = cluster.bootstrap_servers.split(",")[0].split(":")
    # librdkafka would take the lowest 16 bits, which are those of the broker.
    impossible = f"{host}:{int(port) + 65536}"
    with pytest.raises(KafkaUnavailableError, match="valid port"):
        KafkaClient(impossible)
    assert f"{int(port) + 65536} is not a valid port" in caplog.text
    client = KafkaClient([impossible, f"{host}:{port}"])
    assert client.brokers
    client.close()


def test_partitions_that_are_asked_for_later_are_answered_with_the_others(
    client: KafkaClient, topic: str, send: Callable[..., list[bytes]]
) -> None:
    for number in range(4):
        send(number, range(25))
    (first,) = client.send_fetch_request([FetchRequest(topic, 0, 0, 4096)])
    assert len(list(first.messages)) == 25
    responses = client.send_fetch_request(
        [FetchRequest(topic, number, 0, 4096) for number in range(4)], min_bytes=1
    )
    assert [(response.error, response.highwaterMark) for response in responses] == [(0, 25)] * 4
    assert [len(list(response.messages)) for response in responses] == [25] * 4


def test_partition_without_a_leader_delays_the_others_once(
    mock_cluster_factory: Callable[..., Any],
) -> None:
    cluster = mock_cluster_factory()
    cluster.create_topic("t", partitions=2)
    client = KafkaClient(cluster.bootstrap_servers)
    client.send_produce_request([ProduceRequest("t", 0, [create_message(b"x" * 1000)] * 10)])
    assert client.send_fetch_request([FetchRequest("t", 1, 0, 4096)])[0].error == 0
    cluster.set_partition_leader("t", 1, None)
    requests = [FetchRequest("t", 0, 0, 4096), FetchRequest("t", 1, 0, 4096)]
    client.close()  # forgets what was read
    client.send_fetch_request(requests, False)
    begun = time.monotonic()
    for min_bytes in (0, 1, 4096):
        first, _ = client.send_fetch_request(requests, False, min_bytes=min_bytes)
        assert len(list(first.messages)) == 3
    assert time.monotonic() - begun < 4
    client.close()


def test_new_partition_takes_messages(cluster: Any, unique: Unique) -> None:
    topic = unique("topic")
    cluster.create_topic(topic, 1)
    client = KafkaClient(cluster.bootstrap_servers)
    client.send_produce_request([ProduceRequest(topic, 0, [create_message(b"x")])])
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while len(client.get_partition_ids_for_topic(topic)) < 3:
        client.load_metadata_for_topics(topic)
        assert time.monotonic() < deadline
    (response,) = client.send_produce_request([ProduceRequest(topic, 2, [create_message(b"y")])])
    assert response == ProduceResponse(topic.encode(), 2, 0, 0)
    client.close()


@pytest.fixture
def narrow(cluster: Any, unique: Unique) -> str:
    """A topic with messages of up to 100,000 bytes."""
    name = unique("topic")
    cluster.create_topic(name, 1, config={"max.message.bytes": 100_000})
    return name


def test_batch_that_is_too_large_for_the_topic(client: KafkaClient, narrow: str) -> None:
    messages = [create_message(b"%d" % number * 60_000) for number in range(5)]
    (response,) = client.send_produce_request([ProduceRequest(narrow, 0, messages)])
    assert response == ProduceResponse(narrow.encode(), 0, 0, 0)
    assert offset_of(client, narrow, 0) == 5


def test_response_names_what_was_not_stored(client: KafkaClient, narrow: str) -> None:
    values = [b"a", b"b" * 200_000, b"c"]
    request = ProduceRequest(narrow, 0, [create_message(value) for value in values])
    with pytest.raises(MessageSizeTooLargeError) as caught:
        client.send_produce_request([request])
    response = caught.value.args[0]
    assert response == ProduceResponse(narrow.encode(), 0, 10, -1)
    assert [message.value for message in response.payload.messages] == [values[1]]
    assert offset_of(client, narrow, 0) == 2


def test_many_groups_share_few_consumers(client: KafkaClient, topic: str) -> None:
    def offsets(name: str) -> Any:
        client.send_offset_commit_request(name, [OffsetCommitRequest(topic, 0, 7, None)])
        (response,) = client.send_offset_fetch_request(name, [OffsetFetchRequest(topic, 0)])
        return response.offset

    before = live_before()["handles"]
    assert [offsets(f"{topic}-{number}") for number in range(20)] == [7] * 20
    assert cykafka.testing.live_handles()["handles"] - before <= 16
    assert offsets(f"{topic}-0") == 7


def test_answer_of_the_coordinator_ends_an_outage(client: KafkaClient, topic: str) -> None:
    places = [cykafka.TopicPartition(topic, 0)]
    with client._handles.group(topic) as group:

        def answer(*request: Any) -> Any:
            # A slow request is repeated, so note the outage after the answer.
            found = cykafka.Consumer.committed(*request)
            group._outage.note(cykafka.KafkaError(cykafka.KafkaError._ALL_BROKERS_DOWN))
            return found

        for _ in range(2):
            (place,) = group.ask(answer, places)
            assert place.error is None


def test_nan_is_refused(client: KafkaClient, topic: str) -> None:
    consumer = SimpleConsumer(client, None, topic, auto_commit=False)
    with pytest.raises(ValueError, match="NaN"):
        consumer.get_messages(1, timeout=float("nan"))


def test_error_that_the_release_did_not_know_has_a_text(client: KafkaClient, topic: str) -> None:
    with pytest.raises(UnknownError, match=r"error=21.*: Broker: Invalid required acks value"):
        client.send_produce_request([ProduceRequest(topic, 0, [create_message(b"x")])], acks=2)


def test_damaged_compressed_message_is_refused(client: KafkaClient, topic: str) -> None:
    damaged = create_gzip_message([(b"x", None)])._replace(value=b"not gzip")
    with pytest.raises(InvalidMessageError):
        client.send_produce_request([ProduceRequest(topic, 0, [damaged])])


@pytest.mark.parametrize("wrong", [{"value": "x"}, {"key": "x"}])
def test_message_that_is_not_bytes_is_refused(
    client: KafkaClient, topic: str, wrong: dict[str, str]
) -> None:
    message = create_message(b"x")._replace(**wrong)
    with pytest.raises(TypeError, match=f"the {next(iter(wrong))} of a message must be bytes"):
        client.send_produce_request([ProduceRequest(topic, 0, [message])])


def test_deep_copy_is_a_client_of_its_own(client: KafkaClient, topic: str) -> None:
    other = copy.deepcopy(client)
    client.close()
    assert other.brokers == client.brokers
    assert offset_of(other, topic, 0) == 0
    other.close()


# -- life


@pytest.mark.parametrize("step_ms", [0.1, 10])  # while it makes its handles, and while it commits
def test_signal_handler_uses_the_client_while_it_works(
    cluster: Any, topic: str, run_script: RunScript, step_ms: float
) -> None:
    done = run_script(
        """
        import signal, sys
        from cykafka.compat.kafka_python import KafkaClient, create_message
        from cykafka.compat.kafka_python.common import (
            FetchRequest, OffsetCommitRequest, ProduceRequest
        )
        from cykafka.testing import live_handles
        servers, topic, step_ms = sys.argv[1:]

        def use(*_):
            client.send_produce_request([ProduceRequest(topic, 0, [create_message(b"x")])])
            client.send_offset_commit_request("g", [OffsetCommitRequest(topic, 0, 1, None)])

        client = KafkaClient(servers)
        signal.signal(signal.SIGALRM, use)
        for number in range(30):
            client.close()
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + number * float(step_ms) / 1000)
            use()
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        client.close()
        print(live_handles()["handles"])
        """,
        cluster.bootstrap_servers,
        topic,
        str(step_ms),
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_daemon_thread_that_reads_ends_silently_with_the_interpreter(
    cluster: Any, topic: str, run_script: RunScript
) -> None:
    done = run_script(
        """
        import sys, threading, time
        from cykafka.compat.kafka_python import KafkaConsumer
        servers, topic = sys.argv[1:]
        consumers = [KafkaConsumer(topic, bootstrap_servers=servers) for _ in range(3)]
        for consumer in consumers:
            threading.Thread(target=lambda: list(consumer), daemon=True).start()
        time.sleep(1)
        """,
        cluster.bootstrap_servers,
        topic,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_forked_child_commits_nothing_at_its_end(
    cluster: Any, topic: str, run_script: RunScript
) -> None:
    done = run_script(
        """
        import os, sys
        from cykafka.compat.kafka_python import KafkaClient, SimpleConsumer, SimpleProducer
        from cykafka.compat.kafka_python.common import KafkaError, OffsetFetchRequest
        servers, topic = sys.argv[1:]
        client = KafkaClient(servers)
        sender = SimpleProducer(client, async_=True)
        SimpleProducer(client, random_start=False).send_messages(topic, *[b"x"] * 20)
        consumer = SimpleConsumer(client, topic, topic, auto_commit_every_n=1000,
                                  auto_commit_every_t=600_000)
        assert len(consumer.get_messages(10, timeout=20)) == 10
        child = os.fork()
        if child == 0:
            try:
                sender.send_messages(topic, b"never sent")
            except KafkaError as error:
                assert "after a fork" in str(error), error
                sys.exit(3)
            sys.exit(4)
        consumer.get_messages(10, timeout=20)
        consumer.commit()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        (found,) = client.send_offset_fetch_request(topic, [OffsetFetchRequest(topic, 0)])
        print(found.offset)
        """,
        cluster.bootstrap_servers,
        topic,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "3\n20\n"), done.stderr


def test_forgotten_client_is_closed_at_exit(
    cluster: Any, topic: str, run_script: RunScript
) -> None:
    done = run_script(
        """
        import sys
        import warnings
        from cykafka.compat.kafka_python import KafkaClient, SimpleConsumer, SimpleProducer
        warnings.simplefilter("always", ResourceWarning)
        client = KafkaClient(sys.argv[1])
        SimpleProducer(client).send_messages(sys.argv[2], b"x")
        consumer = SimpleConsumer(client, "g", sys.argv[2], iter_timeout=5)
        print(next(iter(consumer)).message.value)
        """,
        cluster.bootstrap_servers,
        topic,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'x'\n", "")


def test_closed_client_connects_again(client: KafkaClient, topic: str) -> None:
    request = ProduceRequest(topic, 0, [create_message(b"x")])
    client.send_produce_request([request])
    client.close()
    client.close()
    (response,) = client.send_produce_request([request])
    client.reinit()
    assert response == ProduceResponse(topic.encode(), 0, 0, 1)
    assert offset_of(client, topic, 0) == 2


def test_copy_is_independent(client: KafkaClient, topic: str) -> None:
    client.load_metadata_for_topics(topic)
    other = client.copy()
    assert other.topics_to_brokers == client.topics_to_brokers
    client.reset_all_metadata()
    client.close()
    assert other.has_metadata_for_topic(topic)
    other.send_produce_request([ProduceRequest(topic, 0, [create_message(b"x")])])
    other.close()


def send_in_child(client: KafkaClient, topic: str) -> None:
    client.send_produce_request([ProduceRequest(topic, 1, [create_message(b"child")])])
    client.close()


def test_forked_child_uses_the_client_too(client: KafkaClient, topic: str) -> None:
    client.send_produce_request([ProduceRequest(topic, 1, [create_message(b"parent")])])
    child = multiprocessing.get_context("fork").Process(target=send_in_child, args=(client, topic))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    client.send_produce_request([ProduceRequest(topic, 1, [create_message(b"parent")])])
    assert offset_of(client, topic, 1) == 3


def test_threads_share_a_client(client: KafkaClient, topic: str) -> None:
    def send() -> None:
        for _ in range(50):
            client.send_produce_request([ProduceRequest(topic, 3, [create_message(b"x")] * 3)])

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert offset_of(client, topic, 3) == 600


# -- produce


@pytest.mark.parametrize("acks", [1, -1])
def test_produce_responses_are_in_the_order_of_the_requests(
    client: KafkaClient, topic: str, acks: int
) -> None:
    requests = [
        ProduceRequest(topic.encode(), partition, [create_message(b"x")] * (partition + 1))
        for partition in (3, 0, 2)
    ]
    expected = [ProduceResponse(topic.encode(), partition, 0, 0) for partition in (3, 0, 2)]
    assert client.send_produce_request(requests, acks=acks) == expected
    again = client.send_produce_request(requests, acks=acks, callback=lambda item: item.offset)
    assert again == [4, 1, 3]


def test_produce_without_acknowledgement_returns_nothing(
    client: KafkaClient, topic: str, wait_until: Callable[..., None]
) -> None:
    request = ProduceRequest(topic, 0, [create_message(b"x"), create_message(b"y")])
    assert client.send_produce_request([request], acks=0) == []
    wait_until(lambda: offset_of(client, topic, 0) == 2)


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_compressed_messages_are_stored_with_their_codec(
    client: KafkaClient, topic: str, codec: str, read_records: Callable[..., Any]
) -> None:
    inner = [(b"a" * 1000, b"key"), (b"b" * 1000, None)]
    messages = [create_message(b"first"), KIND[codec](inner)]
    (response,) = client.send_produce_request([ProduceRequest(topic, 0, messages)])
    assert response.offset == 0
    records = read_records(3)
    assert [(r.value(), r.key()) for r in records] == [(b"first", None), *inner]


def test_too_large_message_is_the_brokers_error(client: KafkaClient, topic: str) -> None:
    request = ProduceRequest(topic, 0, [create_message(b"x" * 3_000_000)])
    with pytest.raises(MessageSizeTooLargeError) as caught:
        client.send_produce_request([request])
    assert caught.value.errno == 10
    (response,) = client.send_produce_request([request], fail_on_error=False)
    assert response == ProduceResponse(topic.encode(), 0, 10, -1)


def test_unknown_partition_sends_nothing(client: KafkaClient, topic: str) -> None:
    requests = [ProduceRequest(topic, number, [create_message(b"x")]) for number in (0, 9)]
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        client.send_produce_request(requests)
    assert caught.value.errno == 3
    assert offset_of(client, topic, 0) == 0


def test_number_of_acks_that_brokers_do_not_know_is_refused(
    client: KafkaClient, topic: str
) -> None:
    request = ProduceRequest(topic, 0, [create_message(b"x")])
    (response,) = client.send_produce_request([request], acks=2, fail_on_error=False)
    assert response.error == 21


def test_failed_payload_has_the_messages_that_were_not_stored(
    kafka_cluster_factory: Callable[..., Any],
) -> None:
    cluster = kafka_cluster_factory()
    cluster.create_topic("t", 2)
    client = KafkaClient(cluster.bootstrap_servers, timeout=2)
    client.load_metadata_for_topics("t")
    requests = [ProduceRequest("t", number, [create_message(b"x")]) for number in (0, 1)]
    cluster.nodes[0].pause()
    begun = time.monotonic()
    try:
        responses = client.send_produce_request(requests, timeout=500, fail_on_error=False)
        assert time.monotonic() - begun < 20
        with pytest.raises(FailedPayloadsError):
            client.send_produce_request(requests, timeout=500)
    finally:
        cluster.nodes[0].resume()
    for request, response in zip(requests, responses, strict=True):
        assert isinstance(response, FailedPayloadsError)
        assert response.payload._replace(messages=list(response.payload.messages)) == request
        assert "timed out" in str(response)
    client.close()


# -- fetch


def fetched(client: KafkaClient, request: FetchRequest, **options: Any) -> list[tuple[int, bytes]]:
    (response,) = client.send_fetch_request([request], **options)
    assert response.error == 0
    return [(offset, message.value) for offset, message in response.messages]


def test_fetch_returns_keys_values_and_the_highwater_mark(client: KafkaClient, topic: str) -> None:
    messages = [create_message(b"v", b"k"), create_message(None, b"k"), create_message(b"w")]
    client.send_produce_request([ProduceRequest(topic, 0, messages)])
    (response,) = client.send_fetch_request([FetchRequest(topic, 0, 0, 4096)], min_bytes=0)
    assert (response.topic, response.partition, response.error) == (topic.encode(), 0, 0)
    assert response.highwaterMark == 3
    assert [(offset, message.key, message.value) for offset, message in response.messages] == [
        (0, b"k", b"v"),
        (1, b"k", None),
        (2, None, b"w"),
    ]


def test_fetch_begins_anywhere(
    client: KafkaClient, topic: str, send: Callable[..., list[bytes]]
) -> None:
    messages = send(0, range(50))
    for offset in (10, 45, 3, 0, 49, 20, 21):
        found = fetched(client, FetchRequest(topic, 0, offset, 1 << 20), min_bytes=0)
        assert found == list(enumerate(messages))[offset:], offset
    assert fetched(client, FetchRequest(topic, 0, 50, 4096), min_bytes=0) == []
    send(0, [50])
    assert fetched(
        client, FetchRequest(topic, 0, 50, 4096), min_bytes=1, max_wait_time=30_000
    ) == [(50, b"50")]


def test_fetch_returns_the_messages_that_fit(client: KafkaClient, topic: str) -> None:
    client.send_produce_request([ProduceRequest(topic, 0, [create_message(b"x" * 74)] * 5)])
    sizes = {99: None, 100: 1, 199: 1, 200: 2, 500: 5, 9999: 5}  # 26 bytes around each
    for most, count in sizes.items():
        request = FetchRequest(topic, 0, 0, most)
        if count is None:
            with pytest.raises(ConsumerFetchSizeTooSmall):
                fetched(client, request, min_bytes=1)
        else:
            assert len(fetched(client, request, min_bytes=1, max_wait_time=30_000)) == count


def test_fetch_waits_for_the_least_bytes(client: KafkaClient, topic: str) -> None:
    request = FetchRequest(topic, 0, 0, 4096)
    fetched(client, request, min_bytes=0)
    begun = time.monotonic()
    assert fetched(client, request, min_bytes=1, max_wait_time=700) == []
    assert time.monotonic() - begun >= 0.7


@pytest.mark.parametrize("offset", [-1, 100])
def test_fetch_beyond_the_log_is_out_of_range(
    client: KafkaClient, topic: str, offset: int
) -> None:
    request = FetchRequest(topic, 0, offset, 4096)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        client.send_fetch_request([request], max_wait_time=30_000)
    assert caught.value.errno == 1
    assert fetched(client, FetchRequest(topic, 0, 0, 4096), min_bytes=0) == []


def test_fetch_of_several_partitions(
    client: KafkaClient, topic: str, send: Callable[..., list[bytes]]
) -> None:
    sent = {number: send(number, range(number * 10, number * 10 + 5)) for number in (0, 1, 3)}
    requests = [FetchRequest(topic, number, 0, 4096) for number in (3, 2, 1, 0)]
    responses = client.send_fetch_request(requests, min_bytes=0)
    assert [response.partition for response in responses] == [3, 2, 1, 0]
    found = {response.partition: [m.value for _, m in response.messages] for response in responses}
    assert found == {**sent, 2: []}


def test_fetch_goes_on_after_a_wrong_request(
    client: KafkaClient, topic: str, send: Callable[..., list[bytes]]
) -> None:
    messages = send(0, range(5))
    wrong = [FetchRequest(topic, 0, 0, 4096), FetchRequest(topic, 1, None, 4096)]  # type: ignore[arg-type]
    with pytest.raises(struct.error):
        client.send_fetch_request(wrong)
    with pytest.raises(AssertionError, match="twice"):
        client.send_fetch_request([FetchRequest(topic, 0, 0, 4096)] * 2)
    found = fetched(client, FetchRequest(topic, 0, 0, 4096), min_bytes=0)
    assert found == list(enumerate(messages))


def test_interrupted_fetch_loses_nothing(
    client: KafkaClient,
    topic: str,
    send: Callable[..., list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cykafka.compat.kafka_python import _fetch

    messages = send(0, range(5))

    def interrupted(batch: Any) -> Any:
        raise KeyboardInterrupt

    request = FetchRequest(topic, 0, 0, 4096)
    with monkeypatch.context() as patch:
        patch.setattr(_fetch, "_Chunk", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.send_fetch_request([request], max_wait_time=30_000)
    assert fetched(client, request, min_bytes=0) == list(enumerate(messages))


# -- offsets


def test_offsets_of_the_ends_and_of_times(
    client: KafkaClient, topic: str, make_producer: Callable[..., Any]
) -> None:
    producer = make_producer()
    producer.publish(topic, [b"x"] * 3, partitions=1, timestamps=[1000, 2000, 3000]).wait(30)
    requests = [
        OffsetRequest(topic, 1, -1, 1),
        OffsetRequest(topic, 0, -1, 2),
    ]
    assert [item.offsets for item in client.send_offset_request(requests)] == [(3,), (0, 0)]
    for time_ms, offset in {-2: 0, 0: 0, 1000: 0, 1001: 1, 3000: 2, 3001: 3}.items():
        assert offset_of(client, topic, 1, time_ms) == offset, time_ms
    (response,) = client.send_offset_request([OffsetRequest(topic, 1, -1, 10)])
    assert response.offsets == (3, 0)


def test_committed_offsets_are_those_of_other_clients(
    client: KafkaClient, topic: str, group: str, cluster: Any
) -> None:
    place = cykafka.TopicPartition(topic, 1, 7)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
    with cykafka.Consumer(config) as consumer:
        consumer.commit(offsets=[place], asynchronous=False)
        found = client.send_offset_fetch_request(
            group, [OffsetFetchRequest(topic, number) for number in (0, 1)]
        )
        assert [(item.offset, item.metadata, item.error) for item in found] == [
            (-1, b"", 0),
            (7, b"", 0),
        ]
        requests = [OffsetCommitRequest(topic, number, 9, b"note") for number in (1, 2)]
        responses = client.send_offset_commit_request(group.encode(), requests)
        assert [(response.partition, response.error) for response in responses] == [(1, 0), (2, 0)]
        assert [item.offset for item in consumer.committed([place])] == [9]
    (found,) = client.send_offset_fetch_request_kafka(group, [OffsetFetchRequest(topic, 2)])
    assert (found.offset, found.metadata) == (9, b"note")


def test_commit_beside_members_of_the_group_is_refused(
    client: KafkaClient, topic: str, group: str, cluster: Any, wait_until: Callable[..., None]
) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
    with cykafka.Consumer(config) as member:
        member.subscribe([topic])
        wait_until(member.assignment, lambda: member.poll(0.1))
        request = OffsetCommitRequest(topic, 0, 1, b"")
        (response,) = client.send_offset_commit_request(group, [request], fail_on_error=False)
        assert response.error == 25
        with pytest.raises(UnknownError):
            client.send_offset_commit_request(group, [request])


def test_coordinator_of_a_group(client: KafkaClient, group: str) -> None:
    response = client.send_consumer_metadata_request(group)
    assert response.error == 0
    assert (response.nodeId, response.host, response.port) in client.brokers.values()


# -- KafkaConnection


@pytest.mark.parametrize(
    ("encode", "name"),
    [
        (KafkaProtocol.encode_produce_request, "send_produce_request"),
        (KafkaProtocol.encode_fetch_request, "send_fetch_request"),
        (KafkaProtocol.encode_offset_request, "send_offset_request"),
    ],
)
def test_connection_names_the_method_for_an_unanswered_request(
    cluster: Any, encode: Callable[..., bytes], name: str
) -> None:
    host, port = cluster.bootstrap_servers.split(",")[0].split(":")
    connection = KafkaConnection(host, int(port), 20)
    connection.send(1, encode(b"client", 1, []))
    with pytest.raises(ConnectionError, match=rf"went away; .*use KafkaClient\.{name}\(\)"):
        connection.recv(1)
    connection.send(2, KafkaProtocol.encode_metadata_request(b"client", 2, []))
    assert KafkaProtocol.decode_metadata_response(connection.recv(2)).brokers
    connection.close()
