"""`close(timeout=)` while a thread of librdkafka that has records in flight does not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.ours

# Two records and a batch are in flight, in one request, when the thread stops.
SCRIPT = """
    import os, pathlib, threading, time
    from cykafka._handle import live_handles
    from cykafka.testing import MockCluster

    stalls = pathlib.Path(os.environ["STALLS"])
    stalled = pathlib.Path(os.environ["STALLED"])
    reports, told = [], threading.Event()
    cluster = MockCluster(1)
    cluster.create_topic("t", partitions=1)
    producer = kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 500, "log_level": 0})
    producer.produce("t", b"first")
    assert producer.flush(30) == 0
    cluster.set_rtt(20_000)
    cluster.start_request_tracking()
    for _ in range(2):
        producer.produce("t", b"x", on_delivery=lambda error, message: reports.append(
            (error.name(), message.value(), message.partition(), message.offset(),
             message.timestamp()[0], message.latency())))
    delivery = producer.publish("t", [b"a", b"b"])
    delivery.add_done_callback(lambda _: told.set())
    if forgotten:
        del delivery
    cluster.wait_for_requests("Produce", 1)
    stalls.touch()
    deadline = time.monotonic() + 30
    while not stalled.exists():
        assert time.monotonic() < deadline
        producer.poll(0.05)
    safety = threading.Timer(20, stalls.unlink)
    safety.start()
    started = time.monotonic()

    closed = producer.close(timeout=0.3)

    print(closed, time.monotonic() - started < 10, reports, told.is_set())
    safety.cancel()
    stalls.unlink()
    cluster.set_rtt(0)
    print(told.wait(30), forgotten or [error.name() for error in delivery.errors.values()])
    cluster.close()
    delivery = None
    deadline = time.monotonic() + 30
    while any(live_handles().values()):
        assert time.monotonic() < deadline, live_handles()
        time.sleep(0.01)
"""


@pytest.mark.parametrize("forgotten", [False, True])
def test_close_does_not_wait_for_a_stalled_thread_and_every_record_has_its_outcome(
    stall: Callable[[str], None], run_script: Callable[..., Any], forgotten: bool
) -> None:
    stall("rdk:broker1")

    done = run_script(f"\n    forgotten = {forgotten}\n{SCRIPT}")

    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    lost = ("_PURGE_INFLIGHT", b"x", None, None, 0, None)
    assert first == f"False True {[lost, lost]} False"
    assert second == ("True True" if forgotten else "True ['_DESTROY', '_DESTROY']")
