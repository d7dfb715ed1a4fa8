"""The entry point of the command ``cykafka``, and ``cykafka version``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from cykafka.cli.failures import run_reporting
from cykafka.internal import run_app, run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if None.

    Returns
    -------
    int
        The exit status.
    """
    if argv is None:
        argv = sys.argv[1:]
        # Commands that have made a topic or a folder remove it, as after Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = list(argv)
    if arguments == ["version"]:  # bug reports need it, whatever is installed
        return run_command(version)
    # A file named - is the standard input; cyclopts takes a single - for an option.
    if arguments[:1] != ["broker"]:  # its arguments are those of another command
        arguments = ["/dev/stdin" if each == "-" else each for each in arguments]
    return run_reporting(lambda: run_app("cykafka.cli.app", arguments, extra="cli"))


def version() -> int:
    """Print what this build is made of: versions, library, patches, features."""
    from cykafka import build_info

    for name, value in build_info().items():
        print(name, (" ".join(value) if isinstance(value, list) else value) or "none")
    return 0
