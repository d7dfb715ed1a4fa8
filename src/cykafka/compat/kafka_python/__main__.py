"""Run a script or module with cykafka as its ``kafka``."""

from __future__ import annotations

import sys
from typing import Any

from cykafka import KafkaException
from cykafka.compat._alias import run_script
from cykafka.compat.kafka_python import install
from cykafka.internal import check_config
from cykafka.internal.command_lines import pairs

USAGE = """\
usage: python -m cykafka.compat.kafka_python [-X name=value ...] script.py [argument ...]
       python -m cykafka.compat.kafka_python [-X name=value ...] -m module [argument ...]

Runs a script or a module that was written for kafka-python 0.9.5, with cykafka where it imports
kafka. The parameter `async` is a keyword since Python 3.7: write async_=True instead.

  -X name=value   a librdkafka property for all clients, such as security.protocol=SSL"""


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    settings: list[str] = []
    while arguments[:1] == ["-X"]:
        settings += arguments[1:2]
        arguments = arguments[2:]
    try:
        properties: dict[str, Any] = dict(pairs(settings))
        check_config(properties)
    except (ValueError, KafkaException) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else error
        print(f"-X: {text}", file=sys.stderr)
        return 2
    try:
        return run_script(arguments, USAGE, lambda: install(properties))
    except SyntaxError as error:
        if "async" in (error.text or ""):
            error.add_note("`async` is a keyword since Python 3.7: write async_=True instead")
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
