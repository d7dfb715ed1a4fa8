"""``python -m cykafka.spark <job>``."""

import sys

from cykafka.spark.jobs.command import main

if __name__ == "__main__":
    sys.exit(main())
