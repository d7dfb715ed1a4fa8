"""``python -m cykafka.testing broker``: runs real Kafka until the command ends."""

import sys

from cykafka.internal.command_lines import run_app

if __name__ == "__main__":
    sys.exit(run_app("cykafka.testing.broker_command", None, extra="testing"))
