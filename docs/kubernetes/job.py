"""The jobs of cykafka as a program for spark-submit and for Spark's operators."""

import sys

from cykafka.spark.jobs.command import main

sys.exit(main())
