"""Messages that are no envelopes: dead letters if there are any, else passed over, with a log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from cykafka.internal import EnvelopeError

from ._dead_letters import DeadLetters
from ._measures import Measures
from ._partition import Partition, Taken

# Pauses after a dead letter that could not be sent, s.
_FIRST_DELAY_S, _LAST_DELAY_S = 0.1, 10.0


class Unreadable:
    """What could not be read and is not finished yet.

    Parameters
    ----------
    name : callable
        The queue's name, for logs.
    dead_letters : callable or None
        Gives the DeadLetters; None: messages are passed over.
    finish : callable
        What is done with messages of one partition that are dealt with.
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
        """A message that could not be read."""
        self._uncounted += 1
        self._waiting.append((taken, error))

    def settle(self) -> None:
        """Deal with what there is, once per batch.

        The reader's thread calls it. Dead letters are sent by another one; what is passed over is
        logged and, without autocommit, committed once per partition, which this waits for.
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
            except BaseException:  # there are too many threads: the next settle() tries again
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
            except Exception as raised:  # whatever it is, it may be otherwise in a moment
                self._measures.fail(None, raised, f"{self._told(taken)}: no dead letter was sent")
                self._ending.wait(delay)
                delay = min(_LAST_DELAY_S, 2 * delay)
                continue
            delay = _FIRST_DELAY_S
            self._waiting.popleft()
            self._end([(taken, error)])
        self._thread = None  # what comes now is seen by the next settle()

    def _end(self, messages: Iterable[tuple[Taken, EnvelopeError]]) -> None:
        """These are dealt with."""
        parts: dict[Partition, list[tuple[Taken, EnvelopeError]]] = {}
        for taken, error in messages:
            parts.setdefault(taken.partition, []).append((taken, error))
        for part in parts.values():
            (first, error), more = part[0], len(part) - 1
            told = f"{self._told(first)}: the message cannot be read: {error}"
            if more:
                told += f" (and {more} more of this batch cannot)"
            self._measures.fail(None, None, told)
            try:
                self._finish([taken for taken, _ in part])
            except Exception as raised:  # the next commit of the partition makes up for it
                self._measures.fail(None, raised, f"{self._told(first)}: not committed")

    def _told(self, taken: Taken) -> str:
        offset = taken.run.offsets[taken.place]
        return f"Queue {self._name()}, partition {taken.partition.number}, offset {offset}"

    def close(self) -> None:
        """What is not dealt with comes again."""
        self._ending.set()
        thread = self._thread
        if thread is not None:
            thread.join(_LAST_DELAY_S)
