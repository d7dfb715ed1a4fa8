"""Unreadable messages: they become dead letters if configured; otherwise the queue skips them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from cykafka.internal import EnvelopeError

from ._dead_letters import DeadLetters
from ._measures import Measures
from ._partition import Partition, Taken

# The first and the longest pause after a dead letter could not be sent, s.
_FIRST_DELAY_S, _LAST_DELAY_S = 0.1, 10.0


class Unreadable:
    """The unreadable messages that are not finished yet.

    Parameters
    ----------
    name : callable
        The queue's name, for logs.
    dead_letters : callable or None
        Returns the DeadLetters. None: skip the messages.
    finish : callable
        Finishes messages of one partition.
    measures : Measures
    """

    def __init__(
        self,
        name: Callable[[], str],
        dead_letters: Callable[[], DeadLetters] | None,
        finish: Callable[[Sequence[Taken]], None],
        measures: Measures,
    ) -> None:
        self._name = name
        self._dead_letters = dead_letters
        self._finish = finish
        self._measures = measures
        self._waiting: deque[tuple[Taken, EnvelopeError]] = deque()
        self._uncounted = 0
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def add(self, taken: Taken, error: EnvelopeError) -> None:
        """Add an unreadable message."""
        self._uncounted += 1
        self._waiting.append((taken, error))

    def settle(self) -> None:
        """Process the added messages. The reader's thread calls this once per batch.

        Another thread sends dead letters. Otherwise this logs and skips the messages and, without
        autocommit, waits for one commit per partition.
        """
        if self._uncounted:
            self._measures.failed(self._uncounted)
            self._uncounted = 0
        if not self._waiting:
            return
        if self._dead_letters is None:
            waiting = tuple(self._waiting)
            self._waiting.clear()
            self._end(waiting)
        elif self._thread is None and not self._ending.is_set():
            name = f"kafka-dead-letters-{self._name()}"
            self._thread = threading.Thread(target=self._bury, name=name, daemon=True)
            try:
                self._thread.start()
            except BaseException:  # too many threads: the next settle() tries again
                self._thread = None
                raise

    def _bury(self) -> None:
        assert self._dead_letters is not None
        delay = _FIRST_DELAY_S
        while self._waiting and not self._ending.is_set():
            taken, error = self._waiting[0]
            try:
                if taken.partition.owned and error.message is not None:
                    self._dead_letters().send(error.message, str(error), 1)
                    self._measures.dead()
            except Exception as raised:  # any error may be temporary
                told = f"{self._told(taken)}: cannot send the dead letter; trying again"
                self._measures.fail(None, raised, told)
                self._ending.wait(delay)
                delay = min(_LAST_DELAY_S, 2 * delay)
                continue
            delay = _FIRST_DELAY_S
            self._waiting.popleft()
            self._end([(taken, error)])
        self._thread = None  # the next settle() starts a thread for later messages

    def _end(self, messages: Iterable[tuple[Taken, EnvelopeError]]) -> None:
        """Log and finish messages."""
        parts: dict[Partition, list[tuple[Taken, EnvelopeError]]] = {}
        for taken, error in messages:
            parts.setdefault(taken.partition, []).append((taken, error))
        for part in parts.values():
            (first, error), more = part[0], len(part) - 1
            told = f"{self._told(first)}: the message cannot be read: {error}"
            if more:
                told += f" (nor can {more} others of this batch)"
            self._measures.fail(None, None, told)
            try:
                self._finish([taken for taken, _ in part])
            except Exception as raised:  # the next commit of the partition includes this offset
                self._measures.fail(None, raised, f"{self._told(first)}: the commit failed")

    def _told(self, taken: Taken) -> str:
        offset = taken.run.offsets[taken.place]
        return f"Queue {self._name()}, partition {taken.partition.number}, offset {offset}"

    def close(self) -> None:
        """Stop sending dead letters. Unfinished messages come again."""
        self._ending.set()
        thread = self._thread
        if thread is not None:
            thread.join(_LAST_DELAY_S)
