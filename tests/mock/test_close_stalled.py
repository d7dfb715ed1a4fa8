"""`close(timeout=)` while a thread of librdkafka with records in flight is stalled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import RunScript

pytestmark = pytest.mark.ours

PRODUCER = """
    import logging, os, pathlib, signal, sys, threading, time
    from cykafka.testing import live_handles
    from cykafka.testing import MockCluster

    stalls = pathlib.Path(os.environ["STALLS"])
    stalled = pathlib.Path(os.environ["STALLED"])
    reports = []
    cluster = MockCluster(1)
    cluster.create_topic("t", partitions=1)

    def make_producer(config={}, of=kafka.Producer):
        return of({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 500,
                   "log_level": 0} | config)

    def reported(error, message):
        reports.append((error and error.name(), message.value(), message.partition(),
                        message.offset(), message.timestamp()[0], message.latency()))

    def stall():
        stalls.touch()
        wait_until(stalled.exists)
        global safety
        safety = threading.Timer(20, resume)
        safety.daemon = True
        safety.start()

    def resume():
        stalls.unlink(missing_ok=True)

    def wait_until(condition):
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def wait_until_nothing_lives():
        wait_until(lambda: not any(live_handles().values()))
"""

# Three records and a batch are in flight, in one request, when the thread stops.
IN_FLIGHT = (
    PRODUCER
    + """
    producer = make_producer()
    producer.produce("t", b"first")
    assert producer.flush(30) == 0
    cluster.set_rtt(20_000)
    cluster.start_request_tracking()
    producer.produce("t", b"nobody asks for it")
    for value in (b"x", b"y"):
        producer.produce("t", value, on_delivery=reported)
    delivery = producer.publish("t", [b"a", b"b"])
    cluster.wait_for_requests("Produce", 1)
    stall()
    producer.poll(0)
    started = time.monotonic()
"""
)


@pytest.fixture
def run_stalled(stall: Callable[[str], None], run_script: RunScript) -> Callable[[str], Any]:
    """Run a script in which stall() stops the thread of the first broker."""
    stall("rdk:broker1")
    return run_script


@pytest.mark.parametrize("forgotten", [False, True])
def test_close_despite_a_stalled_thread_gives_every_record_an_outcome(
    run_stalled: Callable[[str], Any], forgotten: bool
) -> None:
    done = run_stalled(
        IN_FLIGHT
        + f"""
    forgotten = {forgotten}
    told = threading.Event()

    def tell(_):
        told.set()
        raise SystemExit  # Python prints it, and the process goes on

    delivery.add_done_callback(tell)
    unraisable = []
    sys.unraisablehook = lambda args: unraisable.append(args.exc_type.__name__)
    if forgotten:
        del delivery

    closed = producer.close(timeout=0.3)

    print(closed, time.monotonic() - started < 10, reports, told.is_set())
    resume()
    cluster.set_rtt(0)
    if not forgotten:
        try:
            delivery.wait(30)  # in the thread that closed
        except kafka.DeliveryError:
            print([error.name() for error in delivery.errors.values()])
    print(told.wait(30))
    cluster.close()
    delivery = None
    wait_until_nothing_lives()
    print(unraisable)
"""
    )

    assert (
        "5 record(s) have no delivery report, probably because a thread of librdkafka is stalled"
        in done.stderr
    )
    first, *rest = done.stdout.splitlines()
    lost = [("_PURGE_INFLIGHT", value, None, None, 0, None) for value in (b"x", b"y")]
    assert first == f"False True {lost} False"
    expected = ["True", "['SystemExit']"]
    assert rest == (expected if forgotten else ["['_DESTROY', '_DESTROY']", *expected])


def test_logger_that_raises_does_not_repeat_the_close(run_stalled: Callable[[str], Any]) -> None:
    done = run_stalled(
        IN_FLIGHT
        + """
    def refuse(record):
        raise LookupError

    logging.getLogger("cykafka").addFilter(refuse)
    try:
        producer.close(timeout=0.3)
    except LookupError as error:
        print(error.__context__, len(reports), time.monotonic() - started < 10, producer)
"""
    )

    assert done.stdout.endswith("None 2 True <cykafka.Producer rdkafka#producer-2 closed>\n"), (
        done.stderr
    )


def test_answer_that_arrives_during_an_interrupted_close_is_reported(
    run_stalled: Callable[[str], Any],
) -> None:
    """One record fails at once, because it is not in flight yet. Its callback resumes the stalled
    thread, which has the answer for the other records. That ends the wait for them."""
    done = run_stalled(
        PRODUCER
        + """
    producer = make_producer({"linger.ms": 50})
    producer.produce("t", b"first")
    assert producer.flush(30) == 0
    cluster.set_rtt(2000)
    cluster.start_request_tracking()
    producer.produce("t", b"in flight", on_delivery=reported)
    cluster.wait_for_requests("Produce", 1)
    stall()
    producer.poll(0)
    assert reports == []  # the answer has not arrived yet

    def interrupted(error, message):
        print(error.name())
        resume()
        raise KeyboardInterrupt

    producer.produce("t", b"behind it", on_delivery=interrupted)
    try:
        producer.close(timeout=2.5)
    except KeyboardInterrupt:
        print([report[:4] for report in reports])
"""
    )

    assert done.stdout.splitlines() == ["_PURGE_QUEUE", str([(None, b"in flight", 0, 1)])]


@pytest.mark.parametrize("ends_by", ["its timeout", "Ctrl-C"])
def test_close_of_a_transaction_does_not_wait_for_a_stalled_thread(
    run_stalled: Callable[[str], Any], ends_by: str
) -> None:
    done = run_stalled(
        PRODUCER
        + f"""
    producer = make_producer({{"transactional.id": "t", "linger.ms": 0}})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"first", on_delivery=reported)
    assert producer.flush(30) == 0
    cluster.set_rtt(20_000)
    cluster.start_request_tracking()
    producer.produce("t", b"second", on_delivery=reported)
    cluster.wait_for_requests("Produce", 1)
    stall()
    in_time = {ends_by == "its timeout"}
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0 if in_time else 0.5)
    started = time.monotonic()
    try:
        print(producer.close(timeout=0.3 if in_time else 30))
    except KeyboardInterrupt:
        print("Ctrl-C")
    print(time.monotonic() - started < 5)
    resume()
    cluster.set_rtt(0)
    producer.close(timeout=10)
    print([report[:2] for report in reports])
"""
    )

    reports = [
        (None, b"first"),
        ("_PURGE_INFLIGHT" if ends_by == "its timeout" else None, b"second"),
    ]
    ended = "False" if ends_by == "its timeout" else "Ctrl-C"
    assert done.stdout.splitlines() == [ended, "True", str(reports)], done.stderr


@pytest.mark.parametrize("records", [0, 1])
def test_abort_with_records_waits_for_a_stalled_thread_within_its_timeout(
    stall: Callable[[str], None], run_script: RunScript, records: int
) -> None:
    stall("rdk:broker2")
    done = run_script(
        PRODUCER.replace("MockCluster(1)", "MockCluster(2)")
        + f"""
    cluster.set_partition_leader("t", 0, 1)
    cluster.set_coordinator("transaction", "t", 1)
    producer = make_producer({{"transactional.id": "t", "linger.ms": 30_000}})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    for _ in range({records}):
        producer.produce("t", b"queued", on_delivery=reported)
    stall()
    started = time.monotonic()
    try:
        producer.abort_transaction(2)
        print("aborted")
    except kafka.KafkaException as exception:
        print(exception.args[0].name(), exception.args[0].retriable())
    print(time.monotonic() - started < 5)
    resume()
    if {records}:
        producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce("t", b"y", on_delivery=reported)
    producer.commit_transaction(30)
    print([report[:2] for report in reports])
    producer.close()
"""
    )

    reports = [("_PURGE_QUEUE", b"queued")] * records + [(None, b"y")]
    ended = "_TIMED_OUT True" if records else "aborted"
    assert done.stdout.splitlines() == [ended, "True", str(reports)], done.stderr


def test_late_purge_of_a_stalled_thread_spares_the_next_transaction(
    run_stalled: Callable[[str], Any],
) -> None:
    """An error that requires an abort purges without waiting for the broker threads. So the abort
    has to wait for them, although no records are left."""
    done = run_stalled(
        PRODUCER
        + """
    cluster = MockCluster(2)
    cluster.create_topic("t", partitions=3)
    for partition, leader in ((0, 2), (1, 1), (2, 2)):
        cluster.set_partition_leader("t", partition, leader)
    cluster.set_coordinator("transaction", "t", 2)
    producer = make_producer({"transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("t", b"first", partition=partition)
    producer.commit_transaction(30)

    producer.begin_transaction()
    stall()
    cluster.push_request_errors("AddPartitionsToTxn",
                                [kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED])
    producer.produce("t", b"refused", partition=2, on_delivery=reported)
    while not reports:
        producer.poll(0.05)
    try:
        producer.abort_transaction(0.5)
    except kafka.KafkaException as exception:
        print(exception.args[0].name(), exception.args[0].retriable())
        threading.Timer(0.5, resume).start()
        producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce("t", b"next", partition=1, on_delivery=reported)
    threading.Timer(0.5, resume).start()
    producer.commit_transaction(30)
    print([report[:2] for report in reports])
    producer.close()
    cluster.close()
"""
    )

    assert done.stdout.splitlines() == [
        "_TIMED_OUT True",
        "[('_PURGE_QUEUE', b'refused'), (None, b'next')]",
    ], done.stderr


def test_overridden_finalizer_does_not_wait_for_a_stalled_thread(
    run_stalled: Callable[[str], Any],
) -> None:
    done = run_stalled(
        PRODUCER
        + """
    class Hiding(kafka.Producer):
        def __del__(self):
            pass

    producer = make_producer(of=Hiding)
    producer.produce("t", b"first")
    assert producer.flush(30) == 0
    stall()
    started = time.monotonic()

    del producer

    print(time.monotonic() - started < 10)
    resume()
    cluster.close()
    wait_until_nothing_lives()
"""
    )

    assert done.stdout == "True\n", done.stderr


def test_exceptions_of_callbacks_after_a_stalled_thread_are_printed(
    run_stalled: Callable[[str], Any],
) -> None:
    done = run_stalled(
        IN_FLIGHT
        + """
    def refuse(_):
        raise LookupError("first")

    def end(_):
        ended.set()
        raise ArithmeticError("second")

    ended = threading.Event()
    delivery.add_done_callback(refuse)
    delivery.add_done_callback(end)
    del delivery

    closed = producer.close(timeout=0)

    print(closed, time.monotonic() - started < 2)  # including a second for the reports
    resume()
    cluster.set_rtt(0)
    print(ended.wait(30))
    cluster.close()
    wait_until_nothing_lives()
"""
    )

    assert done.stdout.splitlines() == ["False True", "True"], done.stderr
    printed = [line for line in done.stderr.splitlines() if "Error:" in line]
    assert printed == ["LookupError: first", "ArithmeticError: second"]


@pytest.mark.parametrize("raises", [False, True])
def test_callback_after_the_end_of_a_stalled_thread_may_fork(
    run_stalled: Callable[[str], Any], raises: bool
) -> None:
    """The child prints the exception of its callback, and does nothing else for the client."""
    done = run_stalled(
        IN_FLIGHT
        + f"\n    raises = {raises}"
        + """
    ended = threading.Event()

    def fork(_):
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        if raises:
            raise LookupError("of the parent" if child else "of the child")

    delivery.add_done_callback(fork)
    delivery.add_done_callback(lambda _: (print("second"), ended.set()))
    del delivery
    producer.close(timeout=0.3)
    resume()
    cluster.set_rtt(0)
    print(ended.wait(30))
    cluster.close()
    wait_until_nothing_lives()
"""
    )

    assert done.stdout.splitlines() == ["0", "second", "True"], done.stderr
    printed = [line for line in done.stderr.splitlines() if "Error" in line]
    expected = ["LookupError: of the child", "LookupError: of the parent"]
    assert printed == (expected if raises else [])
