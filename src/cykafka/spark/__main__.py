"""``python -m cykafka.spark <job>``."""

import sys

from cykafka.internal.command_lines import run_app

if __name__ == "__main__":
    sys.exit(run_app("cykafka.spark.jobs.command", None, extra="spark"))
