"""How long tests wait, and how quick the machine is at the moment, for tests with a time limit."""

from __future__ import annotations

import queue
import statistics
import threading
import time

# How long a test waits for what must happen, s. It is no claim: only a test that fails waits so
# long, and a busy machine may need much of it.
WAIT_S = 60.0
ROUNDS = 50


def wake_up_s() -> float:
    """The time in which a thread wakes another thread and is woken by it, s.

    It is well below a millisecond on an idle machine and may be a hundred times as long on a busy
    one. A test that expects an immediate answer adds a few of these to its bound.
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
