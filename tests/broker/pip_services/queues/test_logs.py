"""What a queue logs, and how few of its frames a message passes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pip_services4_components.context import ContextResolver
from pip_services4_observability.log import LogLevel
from pip_services_queues import MakeQueue, Receiver, bodies, envelope, received
from pip_services_rig import MakeReferences, Recorder

import pip_services4_kafka
from pip_services4_kafka.connect import KafkaConnection

pytestmark = pytest.mark.ours

OURS = str(Path(pip_services4_kafka.__file__).parent)
MOST_FRAMES = 4


def test_each_message_has_a_line_with_its_trace_id_at_debug_level(
    make_queue: MakeQueue, logger: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[tuple[str | None, str]] = []

    def write(level: int, context: Any, error: Any, message: str) -> None:
        if level == LogLevel.Debug:
            lines.append((ContextResolver.get_trace_id(context) or None, message))

    monkeypatch.setattr(logger, "_write", write)
    messages = [envelope(body, trace=trace) for body, trace in (("secret", "one"), ("2", ""))]
    queue = make_queue()
    queue.send_batch("of the call", messages)
    received(queue, 2)
    assert [line for line in lines if "Sent" in line[1]] == []

    logger.set_level(LogLevel.Debug)
    queue.send_batch("of the call", messages)
    received(queue, 2)
    for verb in ("Sent", "Received"):
        assert sorted((line for line in lines if verb in line[1]), key=str) == [
            ("one", f"{verb} message {messages[0].message_id} via Queue {queue.get_name()}"),
            (None, f"{verb} message {messages[1].message_id} via Queue {queue.get_name()}"),
        ]
    assert not any("secret" in text for _, text in lines)


@pytest.mark.parametrize("shared", [False, True])
def test_warning_of_a_misspelled_key_names_the_queue(
    make_queue: MakeQueue,
    make_references: MakeReferences,
    connection: KafkaConnection,
    logger: Recorder,
    shared: bool,
) -> None:
    references = make_references(connection=connection) if shared else make_references()
    given = {"options__max_atempts": 3}
    if shared:
        given |= dict.fromkeys(("options__connect_timeout", "connection__uri"))
    queue = make_queue(references=references, **given)
    (line,) = (text for _, text, _ in logger.lines if "max_atempts" in text)
    assert line.startswith(f'Queue {queue.get_name()}: "options.max_atempts" is not a key')
    assert "options.max_attempts" in line


@pytest.mark.parametrize(("value", "warned"), [("off", True), ("false", False), (True, False)])
def test_boolean_that_is_none_is_warned_about(
    make_queue: MakeQueue, logger: Recorder, value: Any, warned: bool
) -> None:
    queue = make_queue(autocommit=value)
    text = f'Queue {queue.get_name()}: autocommit: expected true or false, got "off"; using True'
    assert any(line == text for _, line, _ in logger.lines) == warned
    assert queue._auto_commit == (value != "false")


# -- frames


class Frames:
    """Our frames at each call of a function: those between it and the application or thread."""

    def __init__(self, place: str) -> None:
        self._file, self._name = place.split(":")
        self.stacks: list[list[str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name != self._name or self._file not in code.co_filename:
            return
        stack = []
        walk: FrameType | None = frame
        if not code.co_filename.startswith(OURS):
            walk = frame.f_back
        while walk is not None and walk.f_code.co_filename.startswith(OURS):
            stack.append(walk.f_code.co_name)
            walk = walk.f_back
        self.stacks.append(stack)


@pytest.fixture
def frames() -> Iterator[Callable[[str], Frames]]:
    """Note our frames at the calls of a function, in this thread and in new ones."""

    def note(name: str) -> Frames:
        made = Frames(name)
        threading.setprofile(made)
        sys.setprofile(made)
        return made

    yield note
    sys.setprofile(None)
    threading.setprofile(None)


@pytest.mark.parametrize(
    ("step", "place"),
    [
        ("sending", "KafkaConnection.py:publish_envelopes"),
        ("fetching", "_partition.py:add"),
        ("receiving", "_partition.py:take"),
        ("listening", "pip_services_queues.py:receive_message"),
        ("completing", "_partition.py:finish"),
        ("committing", "_session.py:commit"),
        ("abandoning", "_local_queue.py:fail"),
    ],
)
def test_message_passes_at_most_four_frames(
    make_queue: MakeQueue, frames: Callable[[str], Frames], step: str, place: str
) -> None:
    """A developer who stops there in a debugger has few frames to look at."""
    noted = frames(place)
    queue = make_queue(autocommit=False, options__retry_backoff=1)
    queue.send_batch(None, bodies(3))
    queue.abandon(queue.receive(None, 30_000))
    queue.complete(queue.receive(None, 30_000))
    receiver = Receiver(lambda message, queue: queue.complete(message))
    queue.begin_listen(None, receiver)
    receiver.wait(2)
    queue.close(None)
    assert noted.stacks, step
    assert max(map(len, noted.stacks)) <= MOST_FRAMES, max(noted.stacks, key=len)
