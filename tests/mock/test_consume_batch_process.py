"""Batches in separate processes: exit, fork, Ctrl-C, memory."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeProducer, RunScript, Unique
from machine import WAIT_S

pytestmark = pytest.mark.ours

COUNT = 200


@pytest.fixture
def filled(make_producer: MakeProducer, topic: str) -> str:
    """The topic, with COUNT records with headers in its four partitions."""
    producer = make_producer()
    for number in range(COUNT):
        headers = [("number", str(number)), ("none", None)]
        producer.produce(topic, f"value-{number}", f"key-{number}", number % 4, headers=headers)
    assert producer.flush(WAIT_S) == 0
    return topic


def test_exit_with_live_batches_views_and_an_open_consumer(
    run_script: RunScript, cluster: Any, filled: str
) -> None:
    done = run_script(
        """
        import sys
        servers, topic = sys.argv[1:]
        consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "exit"})
        consumer.assign([kafka.TopicPartition(topic, 0, 0)])
        batch = consumer.consume_batch(10, 10)
        other = consumer.consume_batch(10, 10)
        views = other.values(copy=False)
        print(len(batch), len(views))
        """,
        cluster.bootstrap_servers,
        filled,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "10 10\n", ""), done.stderr


def test_forked_child_reads_inherited_batches_and_frees_none(
    run_script: RunScript, cluster: Any, filled: str
) -> None:
    done = run_script(
        """
        import gc, os, sys, warnings
        warnings.simplefilter("ignore")
        servers, topic = sys.argv[1:]
        consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "fork"})
        consumer.assign([kafka.TopicPartition(topic, n, 0) for n in range(4)])
        batches = [consumer.consume_batch(40, 10) for _ in range(5)]
        wanted = [batch.values() for batch in batches]
        views = batches[1].values(copy=False)
        batches[2].detach()
        child = os.fork()
        if not child:
            try:
                assert [batch.values() for batch in batches] == wanted
                assert [bytes(view) for view in views] == wanted[1]
                assert [row.headers()[0][0] for row in batches[0]] == ["number"] * 40
                assert batches[3].header("number").count(None) == 0
                batches[0].detach()
                assert batches[0].values() == wanted[0]
                batches[3].release()
                part = batches[4][::2]
                del batches[4]
                del part, consumer
                gc.collect()
                assert batches[1].values() == wanted[1]
                views.clear()
                batches.clear()
                gc.collect()
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert [batch.values() for batch in batches] == wanted
        del views
        consumer.close()
        assert [batch.values() for batch in batches] == wanted
        from cykafka.testing import live_handles
        print(status, live_handles()["fetched"])
        """,
        cluster.bootstrap_servers,
        filled,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 0\n", ""), done.stderr


def test_interrupt_leaves_the_batch_for_the_next_call(
    script_command: Callable[..., list[str]], cluster: Any, filled: str
) -> None:
    script = """
        import sys
        servers, topic = sys.argv[1:]
        consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "interrupt"})
        consumer.assign([kafka.TopicPartition(topic, n, 0) for n in range(4)])
        ways = (lambda: consumer.consume_batch(100_000),
                lambda: next(consumer.batches(100_000, None)))
        for how in ways:
            while consumer.position(consumer.assignment())[0].offset is None: pass
            print("waiting", flush=True)
            try:
                how()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            else:
                print("returned", flush=True)
        first = consumer.consume_batch(50, 10)
        rest = next(consumer.batches(150, 10))
        values = first.values() + rest.values()
        print(len(first), len(rest), len(set(values)), flush=True)
        consumer.close()
        """
    process = subprocess.Popen(
        script_command(script, cluster.bootstrap_servers, filled),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for _ in range(2):
            assert process.stdout.readline() == "waiting\n"
            # Long enough to gather records. In any case none may be lost.
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
        assert process.stdout.readline() == f"50 150 {COUNT}\n"
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.process_memory
def test_batches_do_not_grow_the_process(run_script: RunScript, cluster: Any, filled: str) -> None:
    done = run_script(
        """
        import gc, os, sys
        from collections import deque
        servers, topic = sys.argv[1:]
        consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "flat",
                                   "fetch.wait.max.ms": 10})
        partitions = [kafka.TopicPartition(topic, n, 0) for n in range(4)]

        def resident_kb():
            gc.collect()
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

        kept = deque(maxlen=5)

        def rounds(count):
            for number in range(count):
                consumer.assign(partitions)
                batch = consumer.consume_batch(200, 10)
                assert len(batch) == 200, len(batch)
                batch.headers(), batch.values(copy=False), batch.offsets, list(batch[::2])
                if number % 2:
                    batch.detach()
                kept.append(batch)

        rounds(60)
        before = resident_kb()
        rounds(200)
        grown = resident_kb() - before
        assert grown < 4000, f"{grown} kB"
        kept.clear()
        from cykafka.testing import live_handles
        assert live_handles()["fetched"] == 0, live_handles()
        consumer.close()
        """,
        cluster.bootstrap_servers,
        filled,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.process_memory
def test_failed_copy_for_lack_of_memory_leaves_the_batch_in_place(
    run_script: RunScript, cluster: Any, make_producer: MakeProducer, unique: Unique
) -> None:
    topic = unique("topic")
    cluster.create_topic(topic, 20)  # the mock keeps 5 MB of each partition
    producer = make_producer()
    for number in range(800):
        producer.produce(topic, bytes(100_000), str(number), partition=number % 20)
    assert producer.flush(WAIT_S) == 0
    done = run_script(
        """
        import resource, sys, time
        from cykafka.testing import live_handles
        servers, topic = sys.argv[1:]
        consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "memory"})
        consumer.assign([kafka.TopicPartition(topic, n, 0) for n in range(20)])
        batch = consumer.consume_batch(800, 20)
        assert len(batch) == 800, len(batch)
        keys, part = batch.keys(), batch[::2]

        # Leave memory for the stack of a thread, but not for the 80 MB of the batch.
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (12 << 20), limits[1]))
        try:
            batch.detach()
        except MemoryError:
            print("no memory")
        assert batch.keys() == keys
        consumer.close()
        print(live_handles()["fetched"])
        assert (batch.keys(), part.keys()) == (keys, keys[::2])
        resource.setrlimit(resource.RLIMIT_AS, limits)
        part.detach()
        print(live_handles()["fetched"])
        assert (batch.keys(), part.keys()) == (keys, keys[::2])
        assert set(batch.values()) == {bytes(100_000)}
        """,
        cluster.bootstrap_servers,
        topic,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "no memory\n800\n0\n", ""), (
        done.stdout + done.stderr
    )
