"""Running a script or a module with cykafka under another library's name."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable


def run_script(arguments: list[str], usage: str, install: Callable[[], None]) -> int:
    """Run ``script.py argument ...`` or ``-m module argument ...`` after `install`.

    Parameters
    ----------
    arguments : list of str
    usage : str
        Printed for ``--help``, and to stderr for arguments that name no script.
    install : callable

    Returns
    -------
    int
        The exit status; an exception of the script is raised.
    """
    if arguments and arguments[0] in ("-h", "--help"):
        print(usage)
        return 0
    as_module = arguments[:1] == ["-m"]
    rest = arguments[as_module:]
    wrong = None
    if not rest:
        wrong = "expected a module" if as_module else "expected a script, or -m and a module"
    elif rest[0].startswith("-"):
        wrong = f"unknown option {rest[0]}"
    elif not as_module and not os.path.exists(rest[0]):
        wrong = f"cannot open {rest[0]}: there is no such file"
    if wrong is not None:
        print(f"{usage}\n\n{wrong}", file=sys.stderr)
        return 2
    install()
    sys.argv = rest
    if as_module:
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return 0
    if not sys.flags.safe_path:
        # As Python does: the script's folder in place of the current one.
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
    runpy.run_path(rest[0], run_name="__main__")
    return 0
