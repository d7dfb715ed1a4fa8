"""A group whose members change one by one from the published package to ours, and back."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Unique
from pip_services_queues import MakeQueue, bodies
from pip_services_rig import Committed, eventually
from pip_services_workers import Handled

pytestmark = [pytest.mark.ours, pytest.mark.timeout(300)]

PARTITIONS = 4

# The same lines run on both packages. The published one has a listener thread of its own, and
# raises when it closes, because it closes its connection first.
MEMBER = """
import contextlib, json, os, sys, warnings
warnings.simplefilter("ignore")
from pip_services4_components.config import ConfigParams
from pip_services4_kafka.queues import KafkaMessageQueue
from pip_services4_messaging.queues import IMessageReceiver

config, package, path = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
assert ("cykafka" in sys.modules) == (package == "ours"), sys.modules["pip_services4_kafka"]
handled = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

class Receiver(IMessageReceiver):
    def receive_message(self, message, queue):
        record = message.get_reference()
        line = b"%d %d %s\\n" % (record.partition(), record.offset(), message.message)
        os.write(handled, line)

queue = KafkaMessageQueue("member")
queue.configure(ConfigParams(config))
queue.open(None)
queue.begin_listen(None, Receiver())
sys.stdin.read()
with contextlib.suppress(Exception):
    queue.close(None)
os._exit(0)
"""


@pytest.fixture(scope="module")
def published() -> Path:
    """The folder of the published package, which runs on the tests' confluent_kafka."""
    path = Path(__file__).parents[4] / "benchmarks" / "_published.py"
    spec = importlib.util.spec_from_file_location("_published", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder, reason = module.find_published()
    assert folder is not None, reason
    return Path(folder)


class Member:
    """A process with one member of the group."""

    def __init__(
        self, package: str, config: dict[str, Any], folder: Path, published: Path
    ) -> None:
        number = len(list(folder.iterdir()))
        self.package = package
        self.handled = Handled(folder / f"{number}-{package}")
        path = [str(published)] if package == "published" else []
        if given := os.environ.get("PYTHONPATH"):
            path.append(given)
        self._process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, json.dumps(config), package, str(self.handled.path)],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )

    def close(self) -> None:
        """Let it close its queue and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0

    def kill(self) -> None:
        self._process.kill()
        with self._process:  # waits, and closes the pipe
            pass


@pytest.fixture
def start(
    cluster: Any, topic: str, group: str, tmp_path: Path, published: Path
) -> Iterator[Callable[[str], Member]]:
    """Start members of the group, of the published package or of ours."""
    host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
    config = {
        "connection.host": host,
        "connection.port": port,
        "topic": topic,
        "group_id": group,
        "from_beginning": True,
        "options.connect_timeout": 10_000,
    }
    made: list[Member] = []

    def start(package: str) -> Member:
        made.append(Member(package, config, tmp_path, published))
        return made[-1]

    yield start
    for member in made:
        member.kill()


def test_members_are_replaced_one_by_one_and_back(
    start: Callable[[str], Member],
    make_queue: MakeQueue,
    committed: Committed,
    unique: Unique,
    topic: str,
    group: str,
) -> None:
    """Each step sends until every member has handled messages, and none is lost."""
    sender = make_queue(group_id=unique("sender"))
    sent = 0
    everyone: list[Member] = []

    def handled() -> set[str]:
        for member in everyone:
            member.handled.look()
        return {body for member in everyone for body in member.handled.bodies}

    def send_until_all_work(members: list[Member]) -> None:
        nonlocal sent
        before = {member: member.handled.look() for member in members}

        def all_work() -> bool:
            nonlocal sent
            sender.send_batch(None, bodies(20, sent))
            sent += 20
            return all(member.handled.look() > before[member] for member in members)

        eventually(all_work)
        eventually(lambda: handled() == {str(number) for number in range(sent)})

    members = [start("published"), start("published")]
    everyone += members
    send_until_all_work(members)
    for old, new in (("published", "ours"), ("published", "ours"), ("ours", "published")):
        leaving = next(member for member in members if member.package == old)
        joining = start(new)
        everyone.append(joining)
        send_until_all_work([*members, joining])
        members = [member for member in members if member is not leaving] + [joining]
        leaving.close()
        send_until_all_work(members)
    assert [member.package for member in members] == ["ours", "published"]
    for member in members:
        member.close()
    assert sum(committed(topic, group).values()) == sent


def test_metadata_of_ours_does_not_disturb_the_published_package(
    start: Callable[[str], Member], make_queue: MakeQueue
) -> None:
    """A reader of ours leaves one message unfinished; an old one gets it, and all behind it."""
    ours = make_queue(autocommit=False, options__write_partition=0)
    ours.send_batch(None, bodies(5))
    for _ in range(5):
        envelope = ours.receive(None, 60_000)
        if envelope.get_message_as_string() != "2":
            ours.complete(envelope)
    ours.close(None)  # commits 2, and that 3 and 4 are finished
    old = start("published")
    eventually(lambda: old.handled.look() == 3)
    assert sorted(old.handled.bodies) == ["2", "3", "4"]
