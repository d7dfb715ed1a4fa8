"""``python -m cykafka.spark <job>``."""

import sys

from cykafka.internal import run_app

if __name__ == "__main__":
    sys.exit(run_app("cykafka.spark.jobs.command", None, extra="spark"))
