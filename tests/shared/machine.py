"""The timeout of tests, and the current speed of the machine for tests with a time limit."""

from __future__ import annotations

import queue
import statistics
import threading
import time

# The time that a test waits for an event, s. It claims nothing about speed: only a failing test
# waits this long, and a busy machine may need much of it.
WAIT_S = 60.0
ROUNDS = 50


def wake_up_s() -> float:
    """The time in which a thread wakes another thread and is woken in turn, s.

    On an idle machine it is well below a millisecond. On a busy one it may be a hundred times
    longer. A test that expects an immediate answer adds a few of these to its bound.
    """
    there: queue.SimpleQueue[bool] = queue.SimpleQueue()
    back: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def answer() -> None:
        while there.get():
            back.put(True)

    thread = threading.Thread(target=answer)
    thread.start()
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        there.put(True)
        back.get()
        times.append(time.perf_counter() - begun)
    there.put(False)
    thread.join()
    return statistics.median(times)
