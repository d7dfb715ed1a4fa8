"""What the tests that kill processes share."""

from __future__ import annotations

import subprocess
import sys
import threading

from processes import Process, family, kill, kill_all


def test_processes_are_killed_with_their_children() -> None:
    program = "import subprocess; subprocess.run(['sleep', '60'])"
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        found: list[Process] = []
        while len(found) < 2:
            found = family(child)
        kill_all(found)
        assert child.wait() == -9
        assert family(child) == []
        assert not kill(found[0])


def test_process_that_has_another_ones_id_or_its_threads_lives() -> None:
    """A signal to the id of a thread reaches its process: here this one."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert thread.native_id
    assert not kill(Process(thread.native_id, 0))
    end.set()
    thread.join()
