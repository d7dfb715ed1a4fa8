"""Run a script or module with cykafka as its ``confluent_kafka``."""

from __future__ import annotations

import os
import runpy
import sys

from cykafka.compat.confluent import install

USAGE = """\
usage: python -m cykafka.compat.confluent script.py [argument ...]
       python -m cykafka.compat.confluent -m module [argument ...]

Runs a script or a module unchanged, with cykafka where it imports confluent_kafka. Modules that
cykafka does not have, such as confluent_kafka.schema_registry, come from the confluent-kafka
package if it is installed. Forked processes also use cykafka; processes that it starts import
the installed confluent_kafka."""


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    as_module = arguments[:1] == ["-m"]
    rest = arguments[as_module:]
    if not rest or rest[0].startswith("-"):
        print(USAGE, file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
