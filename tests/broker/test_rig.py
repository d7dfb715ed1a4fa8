"""The rig itself: real brokers start, fail on demand, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read, RunScript, Unique, WaitUntil
from machine import WAIT_S
from processes import Process, find, kill

from cykafka.testing import KafkaCluster, KafkaClusterError

pytestmark = [pytest.mark.ours, pytest.mark.usefixtures("own_brokers")]

RECORDS = 3_000


@pytest.fixture(scope="module")
def one(kafka_cluster_factory: Callable[..., KafkaCluster]) -> KafkaCluster:
    """A cluster for this module alone, because tests stop and kill its only node."""
    return kafka_cluster_factory()


def servers_of(cluster: KafkaCluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def values(messages: list[Any]) -> list[bytes]:
    return sorted(message.value() for message in messages)


def leader_of(client: Any, topic: str) -> int:
    return int(client.list_topics(timeout=WAIT_S).topics[topic].partitions[0].leader)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return False
    return True


def test_records_round_trip(fill: Fill, topic: str, consumer: Any, read: Read) -> None:
    fill(topic, 10)

    consumer.subscribe([topic])

    assert values(read(consumer, 10)) == sorted(str(n).encode() for n in range(10))


def test_existing_topic_is_refused_with_the_broker_s_message(cluster: Any, topic: str) -> None:
    with pytest.raises(KafkaClusterError, match="already exists"):
        cluster.create_topic(topic)


def test_topic_settings_reach_the_broker(cluster: Any, unique: Unique) -> None:
    name = unique("compacted")
    cluster.create_topic(name, 2, config={"cleanup.policy": "compact"})

    described = cluster.tool("kafka-topics", "--describe", "--topic", name)

    assert "PartitionCount: 2" in described
    assert "cleanup.policy=compact" in described


def test_unknown_tool_is_refused(cluster: Any) -> None:
    with pytest.raises(ValueError, match="kafka-topics"):
        cluster.tool("kafka-topic")


def test_killing_one_of_three_loses_no_acknowledged_record(
    three: KafkaCluster,
    unique: Unique,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    read: Read,
) -> None:
    topic = unique("killed")
    three.create_topic(topic, 1)
    # Idempotent, so that a resent record does not arrive twice.
    config = {**servers_of(three), "acks": "all", "enable.idempotence": True}
    producer = make_producer(config)
    failed = []

    def report(err: Any, msg: Any) -> None:
        if err is not None:
            failed.append(err)

    leader = three.nodes[leader_of(producer, topic) - 1]
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, on_delivery=report)
        if number == RECORDS // 3:
            producer.poll(0.1)
            leader.kill()
    assert producer.flush(WAIT_S) == 0

    assert failed == []
    assert not leader.alive
    assert leader_of(producer, topic) != leader.id
    consumer = make_consumer(servers_of(three))
    consumer.subscribe([topic])
    assert values(read(consumer, RECORDS)) == sorted(b"%d" % n for n in range(RECORDS))


def test_paused_broker_answers_after_it_is_resumed(
    three: KafkaCluster, unique: Unique, make_producer: MakeProducer
) -> None:
    topic = unique("paused")
    three.create_topic(topic, 1, replication_factor=1, config={"min.insync.replicas": 1})
    producer = make_producer(servers_of(three))
    node = three.nodes[leader_of(producer, topic) - 1]
    outcomes: list[Any] = []

    node.pause()
    assert node.paused
    producer.produce(topic, b"x", on_delivery=lambda err, msg: outcomes.append(err))
    assert producer.flush(1.0) == 1  # its only replica does not answer
    assert outcomes == []
    node.resume()

    assert producer.flush(WAIT_S) == 0
    assert outcomes == [None]


@pytest.mark.parametrize(
    ("properties", "fenced"), [({}, False), ({"broker.session.timeout.ms": 2000}, True)]
)
def test_starved_node_takes_new_topics(
    kafka_cluster_factory: Callable[..., KafkaCluster],
    unique: Unique,
    properties: dict[str, object],
    fenced: bool,
) -> None:
    """One node is not fenced. create_topic() waits for a node that is."""
    cluster = kafka_cluster_factory(properties=properties)
    node = cluster.nodes[0]

    for _ in range(5):  # a node may send its heartbeat before its controller looks for it
        node.pause()
        time.sleep(4)  # as a busy machine halts it
        node.resume()
        cluster.create_topic(unique("starved"))
        has_timed_out = "session has timed out" in node.log_tail(10_000)
        if has_timed_out or not fenced:
            break

    assert has_timed_out is fenced


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_restarted_node_keeps_its_address_and_records(
    one: KafkaCluster,
    how: str,
    unique: Unique,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    read: Read,
) -> None:
    topic = unique("kept")
    one.create_topic(topic, 1)
    producer = make_producer(servers_of(one))
    producer.produce(topic, b"kept")
    assert producer.flush(WAIT_S) == 0
    node, before = one.nodes[0], one.bootstrap_servers

    getattr(node, how)()
    assert not node.alive
    assert not connects(before)
    node.start()

    assert one.bootstrap_servers == before
    consumer = make_consumer(servers_of(one))
    consumer.subscribe([topic])
    assert values(read(consumer, 1)) == [b"kept"]


def test_stopped_node_cannot_be_paused(one: KafkaCluster) -> None:
    node = one.nodes[0]
    node.kill()
    try:
        with pytest.raises(KafkaClusterError, match="node 1 is down"):
            node.pause()
    finally:
        node.start()


def test_close_leaves_no_processes_or_files(
    kafka_cluster_factory: Callable[..., KafkaCluster],
) -> None:
    cluster = kafka_cluster_factory()
    node = cluster.nodes[0]
    pid, address, folder = node.pid, node.bootstrap_servers, node.log_path.parent
    assert pid is not None
    assert folder.is_dir()
    assert connects(address)

    cluster.close()
    cluster.close()

    assert not alive(pid)
    assert not folder.exists()
    assert not connects(address)
    with socket.socket() as again:  # the port is free again
        host, _, port = address.rpartition(":")
        again.bind((host, int(port)))
    with pytest.raises(RuntimeError, match="closed"):
        cluster.create_topic("never")


def test_retention_of_the_user_wins_over_the_default(
    kafka: Any, kafka_cluster_factory: Callable[..., KafkaCluster], unique: Unique
) -> None:
    cluster = kafka_cluster_factory(properties={"log.retention.minutes": 60})
    name = unique("topic")
    cluster.create_topic(name)
    resource = kafka.admin.ConfigResource("topic", name)

    with kafka.admin.AdminClient(servers_of(cluster)) as admin:
        entries = admin.describe_configs([resource])[resource].result(WAIT_S)

    assert entries["retention.ms"].value == "3600000"


def test_wrong_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with pytest.raises(KafkaClusterError, match=r"num\.io\.threads"):
        KafkaCluster(properties={"num.io.threads": "many"})

    assert list(tmp_path.iterdir()) == []


def test_node_that_does_not_start_reports_the_cause_and_keeps_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with pytest.raises(
        KafkaClusterError, match=r"node 1 did not start.*no\.such\.Reporter"
    ) as raised:
        KafkaCluster(properties={"metric.reporters": "no.such.Reporter"})

    [note] = raised.value.__notes__
    [folder] = tmp_path.iterdir()
    assert str(folder) in note
    assert "no.such.Reporter" in (folder / "node-1.log").read_text()


def test_error_names_the_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} "):
            KafkaCluster(port=port)


ABANDON = """
import time
from cykafka.testing import KafkaCluster
cluster = KafkaCluster()
print(cluster.nodes[0].pid, cluster.nodes[0].log_path.parent, flush=True)
print("waiting", flush=True)
time.sleep(600)
"""


def test_killed_python_leaves_no_processes_or_files(
    script_command: Callable[..., list[str]], wait_until: WaitUntil
) -> None:
    with subprocess.Popen(script_command(ABANDON), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, _, folder = process.stdout.readline().strip().partition(" ")
        assert process.stdout.readline() == "waiting\n"
        assert alive(int(pid))
        process.kill()

    pause = threading.Event()
    wait_until(lambda: not alive(int(pid)), lambda: pause.wait(0.02))
    wait_until(lambda: not Path(folder).exists(), lambda: pause.wait(0.02))


def formatting(folder: Path) -> Process | None:
    """The process that formats the storage of a cluster in a folder."""
    return find(b"StorageTool", bytes(folder))


def test_python_killed_during_formatting_leaves_no_processes_or_files(
    script_command: Callable[..., list[str]], wait_until: WaitUntil, tmp_path: Path
) -> None:
    pause = threading.Event()
    with subprocess.Popen(
        script_command("from cykafka.testing import KafkaCluster; KafkaCluster()"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        wait_until(lambda: formatting(tmp_path), lambda: pause.wait(0.02), timeout=WAIT_S)
        tool = formatting(tmp_path)
        assert tool is not None
        os.kill(tool.pid, signal.SIGSTOP)  # else it might finish
        process.kill()

    try:
        # If it were alive, it would create the folder again.
        wait_until(lambda: not tool.is_running(), lambda: pause.wait(0.02))
        wait_until(lambda: not list(tmp_path.iterdir()), lambda: pause.wait(0.02))
    finally:
        kill(tool)


def test_forked_child_leaves_the_cluster_alone(run_script: RunScript) -> None:
    done = run_script(
        """
        import os
        from cykafka.testing import KafkaCluster
        with KafkaCluster() as cluster:
            child = os.fork()
            if not child:
                cluster.close()
                try:
                    cluster.bootstrap_servers
                except RuntimeError as error:
                    print(error, flush=True)
                raise SystemExit(0)  # runs the exit handlers
            os.waitpid(child, 0)
            cluster.create_topic("still-there")
            print("created")
        """,
        timeout=WAIT_S,
    )

    assert done.stdout == (
        "the KafkaCluster belongs to the parent of this forked process\ncreated\n"
    ), done.stderr


def test_several_threads_that_start_a_node_start_one_process(one: KafkaCluster) -> None:
    (node,) = one.nodes
    node.kill()
    together = threading.Barrier(3)
    pids = []

    def start() -> None:
        together.wait(WAIT_S)
        node.start()
        pids.append(node.pid)

    threads = [threading.Thread(target=start) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    assert pids == [node.pid] * together.parties
    assert node.alive


def test_node_of_a_closed_cluster_is_not_started() -> None:
    cluster = KafkaCluster()
    (node,) = cluster.nodes
    cluster.close()

    with pytest.raises(RuntimeError, match="closed"):
        node.start()


def test_names_of_listeners_and_users_are_checked() -> None:
    with pytest.raises(TypeError, match=r"listeners .*\['tls'\]"):
        KafkaCluster(listeners="tls")
    with pytest.raises(TypeError, match=r"users .*\['alice'\]"):
        KafkaCluster(listeners=["sasl_plain"], users="alice")
    with pytest.raises(ValueError, match="users"):
        KafkaCluster(listeners=["sasl_plain"], users=[])


def test_unclosed_cluster_warns_and_is_gone_at_exit(run_script: RunScript) -> None:
    done = run_script(
        """
        import warnings
        from cykafka.testing import KafkaCluster
        warnings.simplefilter("always")
        cluster = KafkaCluster()
        print(cluster.nodes[0].pid, cluster.nodes[0].log_path.parent)
        del cluster
        """,
        timeout=WAIT_S,
    )

    pid, _, folder = done.stdout.strip().partition(" ")
    assert "ResourceWarning: unclosed <KafkaCluster of 1 at" in done.stderr
    assert not alive(int(pid))
    assert not Path(folder).exists()
