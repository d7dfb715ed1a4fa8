"""Run a script or module with cykafka as its ``confluent_kafka``."""

from __future__ import annotations

import sys

from cykafka.compat._alias import run_script
from cykafka.compat.confluent import install

USAGE = """\
usage: python -m cykafka.compat.confluent script.py [argument ...]
       python -m cykafka.compat.confluent -m module [argument ...]

Runs a script or a module unchanged, with cykafka where it imports confluent_kafka. Modules that
cykafka does not have, such as confluent_kafka.avro, come from the confluent-kafka package if it is
installed. Without the package confluent_kafka.schema_registry is cykafka.schemas. Forked processes
also use cykafka; processes that it starts import the installed confluent_kafka."""


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    return run_script(arguments, USAGE, install)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
