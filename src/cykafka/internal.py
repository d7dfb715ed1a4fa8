"""Names for cykafka's own layers above the client; applications do not need them.

``cykafka.spark`` and ``pip_services4_kafka`` import these names from here. They may change in any
release.
"""

import os
import signal
import sys
from collections.abc import Callable

from cykafka._core.arrow.checksum import checksum
from cykafka._core.common.config import OWN_KEYS, known_properties
from cykafka._core.consume.consumer import commit_within, consume_ranges
from cykafka._core.consume.ranges import Range, Ranges
from cykafka._core.envelope import EnvelopeCodec, EnvelopeError

__all__ = [
    "OWN_KEYS",
    "EnvelopeCodec",
    "EnvelopeError",
    "Range",
    "Ranges",
    "checksum",
    "commit_within",
    "consume_ranges",
    "known_properties",
    "run_command",
]


def run_command(work: Callable[[], int]) -> int:
    """Run a command and return its exit status, also if its output's reader closes the pipe.

    Parameters
    ----------
    work : callable
        The command; it returns its exit status.
    """
    try:
        try:
            return work()
        finally:
            print(end="", flush=True)  # flush now: at exit Python would report the broken pipe
    except BrokenPipeError:
        # The reader of our output has closed the pipe. At exit Python must not write to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
