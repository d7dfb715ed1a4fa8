"""``python -m cykafka.testing broker``: real Kafka for as long as the command runs."""

import sys

from cykafka.internal import run_app

if __name__ == "__main__":
    sys.exit(run_app("cykafka.testing.command", None, extra="testing"))
