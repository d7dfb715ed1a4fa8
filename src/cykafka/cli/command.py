"""The command ``cykafka``: a demonstration that checks itself, and the versions in use."""

from __future__ import annotations

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
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments == ["version"]:  # bug reports need it, whatever is installed
        return run_command(version)
    # A file named - is the standard input; cyclopts takes a single - for an option.
    arguments = ["/dev/stdin" if each == "-" else each for each in arguments]
    return run_reporting(lambda: run_app("cykafka.cli.app", arguments, extra="cli"))


def version() -> int:
    """Print what this build is made of: versions, library, patches, features."""
    from cykafka import build_info

    for name, value in build_info().items():
        print(name, (" ".join(value) or "none") if isinstance(value, list) else value)
    return 0
