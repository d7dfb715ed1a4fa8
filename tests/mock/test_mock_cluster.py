"""`cykafka.testing.MockCluster`: its life and its arguments."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S

from cykafka import Producer
from cykafka.testing import MockCluster
from cykafka.testing.cluster import API_NAMES, APIS

pytestmark = pytest.mark.ours


def run_python(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def threads() -> int:
    """The threads of mock clusters in this process. A thread counts after its first answer."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            names.append((task / "comm").read_text())
    return names.count("rdk:mock\n")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- arguments


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"brokers": 0}, ValueError, "brokers must be from 1 to 100, not 0"),
        ({"brokers": 101}, ValueError, "brokers"),
        ({"brokers": True}, TypeError, "brokers must be an int, not bool"),
        ({"brokers": "1"}, TypeError, "brokers"),
        ({"brokers": 1.0}, TypeError, "brokers"),
        ({"group_initial_rebalance_delay_ms": -1}, ValueError, "group_initial_rebalance_delay_ms"),
        ({"group_consumer_heartbeat_interval_ms": 0}, ValueError, "heartbeat"),
        ({"group_consumer_session_timeout_ms": 2**31}, ValueError, "session"),
        ({"topics": 1}, TypeError, "topics"),
    ],
)
def test_constructor_wrong_argument(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        MockCluster(**arguments)


@pytest.mark.parametrize(
    ("method", "arguments", "error", "words"),
    [
        ("create_topic", (b"t",), TypeError, "name must be a str, not bytes"),
        ("create_topic", ("",), ValueError, "name"),
        ("create_topic", ("a b",), ValueError, "name"),
        ("create_topic", ("t\0",), ValueError, "name"),
        ("create_topic", ("x" * 250,), ValueError, "name"),
        ("create_topic", ("..",), ValueError, "name"),
        ("create_topic", ("t", 0), ValueError, "partitions"),
        ("create_topic", ("t", 2**31), ValueError, "partitions"),
        ("create_topic", ("t", 1, 2), ValueError, "replication_factor must be from 1 to 1"),
        ("set_topic_error", ("t", "x"), TypeError, "error"),
        ("set_topic_error", ("t", 2**20), ValueError, "error"),
        ("set_partition_leader", ("t", -1, 1), ValueError, "partition"),
        ("set_partition_leader", ("t", 2**31 - 1, 1), ValueError, "partition"),
        ("set_partition_leader", ("t", 0, 2), ValueError, "broker must be from 1 to 1, not 2"),
        ("set_coordinator", ("topic", "k", 1), ValueError, "key_type"),
        ("set_coordinator", ("group", 1, 1), TypeError, "key"),
        ("set_coordinator", ("group", "", 1), ValueError, "key"),
        ("set_coordinator", ("group", "k", None), TypeError, "broker"),
        ("broker_down", (0,), ValueError, "broker"),
        ("broker_up", ("1",), TypeError, "broker"),
        ("set_rtt", (-1,), ValueError, "rtt_ms"),
        ("set_rtt", (0.5,), TypeError, "rtt_ms"),
        ("push_request_errors", ("Produced", [6]), ValueError, 'did you mean "Produce"'),
        ("push_request_errors", ("CreateTopics", [6]), ValueError, "CreateTopics"),
        ("push_request_errors", (19, [6]), ValueError, "19"),
        ("push_request_errors", (None, [6]), TypeError, "api"),
        ("push_request_errors", (0, ["NOT_LEADER"]), TypeError, "errors"),
        ("push_request_errors", (0, 6), TypeError, "iterable"),
        ("set_api_versions", ("Produce", 0, 11), ValueError, "highest"),
        ("set_api_versions", ("Produce", 5, 4), ValueError, "versions 0 to 10"),
        ("set_api_versions", ("Produce", -1, 4), ValueError, "lowest"),
        ("set_api_versions", ("OffsetForLeaderEpoch", 1, 2), ValueError, "versions 2 to 2"),
        ("wait_for_requests", ("Produce", 0), ValueError, "count"),
    ],
)
def test_method_wrong_argument(
    mock_cluster: MockCluster,
    method: str,
    arguments: tuple[Any, ...],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        getattr(mock_cluster, method)(*arguments)


def test_push_request_errors_rtt_needs_broker(mock_cluster: MockCluster) -> None:
    with pytest.raises(ValueError, match="rtt_ms needs a broker"):
        mock_cluster.push_request_errors("Produce", [0], rtt_ms=5)


def test_api_versions_are_those_of_the_cluster(mock_cluster: MockCluster) -> None:
    for name, (key, lowest, highest) in APIS.items():
        assert API_NAMES[key] == name
        mock_cluster.set_api_versions(name, lowest, highest)


# -- life

CALLS: dict[str, tuple[Any, ...]] = {
    "create_topic": ("t",),
    "configure_share_groups": (),
    "set_topic_error": ("t", 0),
    "set_partition_leader": ("t", 0, 1),
    "set_partition_follower": ("t", 0, 1),
    "set_coordinator": ("group", "g", 1),
    "broker_down": (),
    "broker_up": (),
    "set_rtt": (0,),
    "push_request_errors": ("Produce", [6]),
    "clear_request_errors": (),
    "set_api_versions": ("Produce", 0, 10),
    "start_request_tracking": (),
    "stop_request_tracking": (),
    "clear_requests": (),
    "requests": (),
    "wait_for_requests": ("Produce",),
    "__enter__": (),
}


def test_calls_are_all_methods() -> None:
    methods = {name for name in dir(MockCluster) if name[0] != "_"}
    assert methods - {"bootstrap_servers", "brokers", "close"} == set(CALLS) - {"__enter__"}


@pytest.mark.parametrize("method", CALLS)
def test_method_after_close_raises(method: str) -> None:
    cluster = MockCluster()
    cluster.close()
    with pytest.raises(RuntimeError, match="closed"):
        getattr(cluster, method)(*CALLS[method])


def test_push_request_errors_for_broker_after_close_raises() -> None:
    cluster = MockCluster()
    cluster.close()
    with pytest.raises(RuntimeError, match="closed"):
        cluster.push_request_errors("Produce", [6], broker=1)


def test_close_twice() -> None:
    with MockCluster() as cluster:
        assert cluster.bootstrap_servers
    cluster.close()
    with pytest.raises(RuntimeError, match="closed"):
        _ = cluster.bootstrap_servers
    assert repr(cluster) == "<MockCluster closed>"


def test_unclosed_warns_and_is_freed() -> None:
    before = threads()
    cluster = MockCluster()
    cluster.set_rtt(0)
    assert threads() > before
    with pytest.warns(ResourceWarning, match="unclosed <MockCluster"):
        del cluster
    assert threads() == before


def test_failed_constructor_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="brokers"):
            MockCluster(0)
        gc.collect()


def test_close_while_other_threads_call() -> None:
    for _ in range(20):
        cluster = MockCluster()
        started = threading.Barrier(4)
        unexpected: list[BaseException] = []

        def work(
            cluster: MockCluster = cluster,
            started: threading.Barrier = started,
            unexpected: list[BaseException] = unexpected,
        ) -> None:
            started.wait()
            try:
                while True:
                    cluster.set_rtt(0)
                    cluster.push_request_errors("Produce", [6])
            except RuntimeError:
                pass
            except BaseException as error:
                unexpected.append(error)

        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        started.wait()
        cluster.close()
        for worker in workers:
            worker.join(WAIT_S)
            assert not worker.is_alive()
        assert unexpected == []


def test_open_and_close_does_not_grow() -> None:
    MockCluster().close()
    files = descriptors()
    started = threads()
    for _ in range(50):
        MockCluster(brokers=2).close()
    assert descriptors() == files
    assert threads() == started


def test_forked_child_raises_and_parent_continues(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", partitions=1)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python >= 3.12: fork with threads
        pid = os.fork()
    if pid == 0:
        said = b"nothing"
        try:
            mock_cluster.set_rtt(5)
        except RuntimeError as error:
            said = str(error).encode()
        mock_cluster.close()
        os.write(write, said)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert "fork" in pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    client = Producer({"bootstrap.servers": mock_cluster.bootstrap_servers})
    client.produce("t", b"v")
    assert client.flush(WAIT_S) == 0
    client.close()


def test_interpreter_exit_with_open_cluster() -> None:
    result = run_python(
        """
        from cykafka.testing import MockCluster
        kept = MockCluster(brokers=2)
        """
    )
    assert "Traceback" not in result.stderr


def test_too_few_descriptors_raises() -> None:
    result = run_python(
        """
        import resource
        from cykafka.testing import MockCluster
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        try:
            MockCluster(brokers=50)
        except OSError as error:
            print(error.strerror)
        MockCluster(brokers=1).close()
        """
    )
    assert result.stdout == "Too many open files\n"


def test_threads_of_the_cluster_block_signals() -> None:
    with MockCluster() as cluster:
        cluster.set_rtt(0)
        assert threads() > 0
        for task in Path("/proc/self/task").iterdir():
            lines = (task / "status").read_text().splitlines()
            status = dict(line.split(":", 1) for line in lines)
            if status["Name"].strip() == "rdk:mock":
                assert int(status["SigBlk"], 16) >> (signal.SIGINT - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


# -- fixtures


def test_factory_closes_its_clusters(tmp_path: Path) -> None:
    source = """
        made = []

        def test_makes(mock_cluster_factory, mock_cluster):
            made.append(mock_cluster)
            made.append(mock_cluster_factory(brokers=2))
            made[1].close()
            assert mock_cluster.brokers == 1

        def test_all_closed():
            assert [repr(cluster) for cluster in made] == ["<MockCluster closed>"] * 2
        """
    path = tmp_path / "test_fixtures.py"
    path.write_text(textwrap.dedent(source))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert "2 passed" in result.stdout, result.stdout


def test_plugin_import_loads_no_client() -> None:
    run_python(
        """
        import sys
        import cykafka.testing.plugin
        assert "cykafka._core.mock" not in sys.modules
        """
    )
