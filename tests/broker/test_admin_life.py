"""The life of AdminClient and its futures: every future gets exactly one outcome."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import gc
import resource
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from fixture_types import RunScript, Unique
from live import live_before
from machine import WAIT_S

pytestmark = pytest.mark.ours


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def waiting(api: ModuleType, silent: str) -> Iterator[Callable[..., Any]]:
    """Make clients whose requests stay in flight."""
    made = []

    def make() -> Any:
        made.append(api.AdminClient({"bootstrap.servers": silent, "log_level": 0}))
        return made[-1]

    yield make
    for client in made:
        client.close()


def code(kafka: ModuleType, future: Any) -> int:
    failure = future.exception(WAIT_S)
    assert isinstance(failure, kafka.KafkaException)
    return int(failure.args[0].code())


def test_close_fails_the_requests_in_flight(
    kafka: ModuleType, api: ModuleType, waiting: Any
) -> None:
    client = waiting()
    futures = [client.describe_cluster() for _ in range(5)]
    futures += client.create_topics([api.NewTopic("a"), api.NewTopic("b")]).values()

    client.close()

    assert [code(kafka, future) for future in futures] == [kafka.KafkaError._DESTROY] * 7
    with pytest.raises(RuntimeError, match="closed"):
        client.describe_cluster()
    client.close()


def test_with_block_closes(kafka: ModuleType, api: ModuleType, silent: str) -> None:
    with api.AdminClient({"bootstrap.servers": silent, "log_level": 0}) as client:
        future = client.list_consumer_groups()

    assert code(kafka, future) == kafka.KafkaError._DESTROY


@pytest.mark.parametrize(
    "ask",
    [
        lambda client, kafka: client.poll(0),
        lambda client, kafka: client.list_topics(timeout=1),
        lambda client, kafka: client.list_groups(timeout=1),
        lambda client, kafka: client.cluster_id(1),
        lambda client, kafka: client.set_sasl_credentials("u", "p"),
        lambda client, kafka: client.describe_topics(kafka.TopicCollection(["t"])),
        lambda client, kafka: client.describe_topics(kafka.TopicCollection([])),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_closed_client_refuses_requests(kafka: ModuleType, waiting: Any, ask: Any) -> None:
    client = waiting()
    client.close()

    with pytest.raises(RuntimeError, match="closed"):
        ask(client, kafka)
    assert len(client) == 0


def test_uninitialized_client_refuses_requests(api: ModuleType) -> None:
    client = api.AdminClient.__new__(api.AdminClient)

    with pytest.raises(RuntimeError, match="__init__"):
        client.describe_cluster()
    client.close()


def test_dropped_client_lives_until_its_requests_are_answered(
    api: ModuleType, cluster: Any
) -> None:
    future = api.AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).describe_cluster()

    def end_of_the_client() -> None:
        for thread in threading.enumerate():
            if thread.name == "AdminClient results":
                thread.join(WAIT_S)

    # The thread that serves the client has the last reference, so the client is freed there.
    with pytest.warns(ResourceWarning, match="never closed"):
        end_of_the_client()
    assert future.result(WAIT_S).nodes


def test_callback_closes_the_client(admin: Any, kafka: ModuleType) -> None:
    done = threading.Event()

    def close(future: Any) -> None:
        admin.close()
        done.set()

    admin.describe_cluster().add_done_callback(close)

    assert done.wait(WAIT_S)
    with pytest.raises(RuntimeError, match="closed"):
        admin.describe_cluster()


def test_callback_closes_the_client_of_other_requests(kafka: ModuleType, waiting: Any) -> None:
    client = waiting()
    slow = client.describe_cluster()
    quick = client.describe_cluster(request_timeout=0.1)

    quick.add_done_callback(lambda _: client.close())

    assert code(kafka, quick) in (kafka.KafkaError._TIMED_OUT, kafka.KafkaError._TRANSPORT)
    assert code(kafka, slow) == kafka.KafkaError._DESTROY


def test_new_controller_is_found_after_a_request_that_timed_out(
    kafka: ModuleType, api: ModuleType, three: Any, unique: Unique
) -> None:
    new = api.NewTopic(unique("topic"), num_partitions=1)
    with api.AdminClient({"bootstrap.servers": three.bootstrap_servers}) as client:

        def ask() -> BaseException | None:
            answer = client.create_topics([new], validate_only=True, request_timeout=5)
            failure: BaseException | None = answer[new.topic].exception(WAIT_S)
            return failure

        known = client.list_topics(timeout=WAIT_S).controller_id
        node = next(node for node in three.nodes if node.id == known)
        node.kill()
        # The other brokers may still name the dead node until its controller session ends.
        timed_out = any(ask() is not None for _ in range(3))
        failure = ask() if timed_out else None

    assert failure is None


def test_offsets_are_found_after_the_leader_has_restarted(
    api: ModuleType, kafka: ModuleType, kafka_cluster_factory: Callable[..., Any]
) -> None:
    """The leader has a new epoch, and the client may not know it."""
    cluster = kafka_cluster_factory()
    cluster.create_topic("t", 1)
    place = kafka.TopicPartition("t", 0)
    with api.AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:

        def ask() -> BaseException | None:
            answer = client.list_offsets({place: api.OffsetSpec.latest()}, request_timeout=WAIT_S)
            failure: BaseException | None = answer[place].exception(WAIT_S)
            return failure

        assert ask() is None
        cluster.nodes[0].kill()
        cluster.nodes[0].start()
        deadline = time.monotonic() + 20
        while ask() is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_callback_of_a_closed_client_s_future_closes_again(
    kafka: ModuleType, waiting: Any
) -> None:
    client = waiting()
    closed = []
    future = client.describe_cluster()
    future.add_done_callback(lambda _: closed.append(client.close()))

    assert client.close() is False
    assert closed == [False]  # the result of the outer close()
    assert code(kafka, future) == kafka.KafkaError._DESTROY


def test_client_is_closed_when_its_futures_fail(waiting: Any) -> None:
    from cykafka.testing import live_handles

    client = waiting()
    future = client.describe_cluster()
    seen: list[Any] = []

    def look(_: Any) -> None:
        # A callback may also wait for a thread that closes.
        thread = threading.Thread(target=lambda: seen.append(client.close(0)))
        thread.start()
        thread.join(WAIT_S)
        seen.extend([repr(client).rsplit(" ", 1)[1], live_handles()["handles"] == before - 1])

    before = live_before()["handles"]
    future.add_done_callback(look)

    assert client.close() is False
    assert seen == [False, "closed>", True]


def test_callback_may_send_another_request(admin: Any) -> None:
    answers: list[Any] = []
    enough = threading.Event()

    def again(future: Any) -> None:
        answers.append(future.result())
        if len(answers) < 5:
            admin.describe_cluster().add_done_callback(again)
        else:
            enough.set()

    admin.describe_cluster().add_done_callback(again)

    assert enough.wait(WAIT_S)


def test_callback_may_make_a_synchronous_request(admin: Any) -> None:
    answers: list[Any] = []
    done = threading.Event()

    def ask(future: Any) -> None:
        answers.append(admin.list_topics(timeout=WAIT_S).brokers)
        done.set()

    admin.describe_cluster().add_done_callback(ask)

    assert done.wait(WAIT_S)
    assert answers


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_callback_that_raises_does_not_stop_the_others(
    kafka: ModuleType, admin: Any, topic: str, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: printed.append(raised.exc_type))
    names = [topic, unique("a"), unique("b")]
    futures = admin.describe_topics(kafka.TopicCollection(names))

    def fail(future: Any) -> None:
        raise SystemExit("from a callback")

    for future in futures.values():
        future.add_done_callback(fail)

    assert futures[topic].result(WAIT_S).name == topic
    for name in names[1:]:
        assert code(kafka, futures[name]) == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert admin.describe_cluster().result(WAIT_S).nodes
    assert set(printed) == {SystemExit}


def test_future_that_the_caller_resolved_keeps_its_result(admin: Any, waiting: Any) -> None:
    future = admin.describe_cluster()
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        future.set_result("mine")

    assert admin.describe_cluster().result(WAIT_S).nodes


def test_future_of_a_key_whose_hash_raises_still_completes(
    api: ModuleType, admin: Any, topic: str
) -> None:
    class Odd(api.ConfigResource):  # type: ignore[name-defined, misc]
        spoilt = False

        def __hash__(self) -> int:
            if self.spoilt:
                raise ArithmeticError
            return super().__hash__()

    odd = Odd("topic", topic)

    futures = admin.describe_configs([odd])
    Odd.spoilt = True

    (future,) = futures.values()
    failure = future.exception(WAIT_S)
    assert failure is None or isinstance(failure, ArithmeticError)


def test_many_threads_send_requests_at_once(admin: Any) -> None:
    def ask(_: int) -> int:
        return len(admin.describe_cluster().result(WAIT_S).nodes)

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert min(threads.map(ask, range(200))) > 0


def test_client_closes_while_threads_send_requests(kafka: ModuleType, make_admin: Any) -> None:
    for _ in range(10):
        client = make_admin()
        started = threading.Event()
        futures: list[Any] = []

        def ask(client: Any = client, started: Any = started, futures: Any = futures) -> None:
            try:
                while True:
                    futures.append(client.describe_cluster())
                    started.set()
            except RuntimeError:
                pass

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert started.wait(WAIT_S)
        client.close()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        for future in futures:
            failure = future.exception(WAIT_S)
            assert failure is None or failure.args[0] == kafka.KafkaError._DESTROY


def test_collector_frees_a_client_in_a_cycle(api: ModuleType, cluster: Any) -> None:
    class Holder:
        pass

    holder: Any = Holder()
    holder.client = api.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    holder.itself = holder
    assert holder.client.describe_cluster().result(WAIT_S).nodes

    del holder
    with pytest.warns(ResourceWarning, match="never closed"):
        gc.collect()


def test_request_to_a_silent_broker_times_out(
    kafka: ModuleType, api: ModuleType, waiting: Any
) -> None:
    client = waiting()
    partition = kafka.TopicPartition("t", 0)

    futures = [
        *client.create_topics([api.NewTopic("t")], request_timeout=0.3).values(),
        *client.delete_records([partition], request_timeout=0.3).values(),
        *client.list_offsets({partition: api.OffsetSpec.latest()}, request_timeout=0.3).values(),
        *client.describe_consumer_groups(["g", "h"], request_timeout=0.3).values(),
        *client.delete_consumer_groups(["g", "h"], request_timeout=0.3).values(),
        client.describe_cluster(request_timeout=0.3),
    ]

    codes = {code(kafka, future) for future in futures}
    assert codes <= {kafka.KafkaError._TIMED_OUT, kafka.KafkaError._TRANSPORT}


PRELUDE = """
    import os, sys, threading, gc
    from kafka.admin import AdminClient, NewTopic
    from cykafka.testing import live_handles
    config = {"bootstrap.servers": sys.argv[1], "log_level": 0}

    def end_of_threads():
        for thread in threading.enumerate():
            if thread is not threading.main_thread():
                thread.join()
"""


@pytest.mark.parametrize(
    ("script", "output"),
    [
        pytest.param(
            """
            client = AdminClient(config)
            future = client.describe_cluster()
            future.add_done_callback(lambda f: print(f.exception().args[0].name()))
            """,
            "_DESTROY",
            id="exit",
        ),
        pytest.param(
            """
            client = AdminClient(config)
            future = client.describe_cluster()
            threading.Thread(target=future.exception, daemon=True).start()
            print("left")
            """,
            "left",
            id="exit with a thread that waits",
        ),
        pytest.param(
            """
            future = AdminClient(config).describe_cluster()
            print("left", flush=True)
            os._exit(0)
            """,
            "left",
            id="at once",
        ),
        pytest.param(
            """
            client = AdminClient(config)
            client.describe_cluster()
            client.__del__()
            del client
            end_of_threads()
            gc.collect()
            print("freed")
            """,
            "freed",
            id="finalizer called by hand",
        ),
        pytest.param(
            """
            client = AdminClient(config)
            future = client.describe_cluster()
            child = os.fork()
            if child == 0:
                try:
                    client.describe_cluster()
                except RuntimeError as error:
                    ok = "fork" in str(error)
                client.close()
                del client
                gc.collect()
                os._exit(0 if ok and not future.done() else 1)
            print("child", os.waitpid(child, 0)[1])
            client.close()
            print(future.exception().args[0].name())
            """,
            "child 0\n_DESTROY",
            id="fork",
        ),
        pytest.param(
            """
            forked = threading.Event()
            def fork(future):
                global child
                child = os.fork()
                forked.set()
            client = AdminClient(config)
            future = client.describe_cluster()
            client.describe_cluster(request_timeout=0.1).add_done_callback(fork)
            forked.wait()
            print("child", os.waitpid(child, 0)[1])  # the child does nothing and prints nothing
            client.close()
            print(future.exception().args[0].name())
            """,
            "child 0\n_DESTROY",
            id="fork in a callback",
        ),
        pytest.param(
            """
            class Hiding(AdminClient):
                def __del__(self):
                    pass
            client = Hiding(config)
            print(client.describe_cluster(request_timeout=0.1).exception() is not None)
            del client
            end_of_threads()
            gc.collect()
            print(live_handles()["handles"])
            """,
            "True\n0",
            id="hidden finalizer",
        ),
        pytest.param(
            """
            client = AdminClient(config)
            future = client.describe_cluster()
            threading.Thread.start = lambda self: 1 / 0
            other = AdminClient(config)
            try:
                other.describe_cluster()
            except ZeroDivisionError:
                print("refused")
            other.close()
            client.close()
            print(future.exception().args[0].name())
            """,
            "refused\n_DESTROY",
            id="no thread can start",
        ),
    ],
)
def test_process_exits_cleanly_with_requests_in_flight(
    run_script: RunScript, silent: str, script: str, output: str
) -> None:
    source = textwrap.dedent(PRELUDE) + textwrap.dedent(script)
    source = source.replace("from kafka.admin", "from cykafka.admin")

    process = run_script(source, silent)

    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == output
    assert "Traceback" not in process.stderr


def kinds(kafka: ModuleType, api: ModuleType, topic: str, group: str) -> dict[str, Any]:
    """The arguments of one request of each kind. Some of the requests fail."""
    partition = kafka.TopicPartition(topic, 0)
    offsets = kafka.ConsumerGroupTopicPartitions(group, [kafka.TopicPartition(topic, 0, 1)])
    change = api.ConfigEntry("retention.ms", "1", incremental_operation=api.AlterConfigOpType.SET)
    acl = api.AclBinding("topic", topic, "literal", "User:u", "*", "read", "allow")
    same = api.AclBindingFilter(*acl._to_tuple())
    info = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_256, 4096)
    return {
        "create_topics": ([api.NewTopic(topic, 1, replica_assignment=[[1]], config={"a": "b"})],),
        "delete_topics": (["missing-" + topic],),
        "create_partitions": ([api.NewPartitions(topic, 1, replica_assignment=[[1]])],),
        "describe_topics": (kafka.TopicCollection([topic]),),
        "list_offsets": ({partition: api.OffsetSpec.latest()},),
        "delete_records": ([kafka.TopicPartition(topic, 0, 0)],),
        "elect_leaders": (kafka.ElectionType.PREFERRED, [partition]),
        "describe_configs": ([api.ConfigResource("topic", topic)],),
        "alter_configs": ([api.ConfigResource("topic", topic, set_config={"x": "y"})],),
        "incremental_alter_configs": (
            [api.ConfigResource("topic", topic, incremental_configs=[change])],
        ),
        "create_acls": ([acl],),
        "describe_acls": (same,),
        "delete_acls": ([same],),
        "list_consumer_groups": (),
        "describe_consumer_groups": ([group],),
        "delete_consumer_groups": (["missing-" + group],),
        "list_consumer_group_offsets": ([kafka.ConsumerGroupTopicPartitions(group)],),
        "alter_consumer_group_offsets": ([offsets],),
        "delete_consumer_group_offsets": ([offsets],),
        "describe_cluster": (),
        "describe_user_scram_credentials": ([group],),
        "alter_user_scram_credentials": (
            [api.UserScramCredentialUpsertion(group, info, b"secret")],
        ),
    }


@pytest.mark.process_memory
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_requests_do_not_grow_the_process(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, unique: Unique
) -> None:
    from cykafka.testing import live_handles

    calls = kinds(kafka, api, topic, unique("group"))

    def ask(times: int) -> None:
        for method, args in calls.items():
            for answer in [getattr(admin, method)(*args) for _ in range(times)]:
                for future in answer.values() if isinstance(answer, dict) else [answer]:
                    future.exception(WAIT_S)
            with pytest.raises(TypeError):
                getattr(admin, method)(*args, no_such_option=1)

    def in_memory() -> int:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # free memory may be anywhere in the heap
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()

    def growth() -> int:
        before = in_memory()
        ask(200)
        return in_memory() - before

    ask(100)
    handles, objects = live_before(), len(gc.get_objects())
    # A leak of 500 bytes in each of 4400 requests would be 2.2 MB every time. The process may
    # grow by as much once, because of an earlier test.
    assert any(growth() < 2_000_000 for _ in range(3))

    assert live_handles() == handles
    assert abs(len(gc.get_objects()) - objects) < 500
