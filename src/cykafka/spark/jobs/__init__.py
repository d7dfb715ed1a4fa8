"""Ready-made pipelines: ``python -m cykafka.spark <job> --config job.toml``.

- ``archive``: topics to Parquet, by topic and date
- ``replay``: Parquet to a topic
- ``mirror``: topic to topic, with an SQL transform
- ``redrive``: a dead letter topic back to where its records came from
- ``profile``: what topics hold, as tables and a chart

From bottom to top: `fields` has the types of values and `config` the keys of each job, `checks`
compares keys with one another, `load` reads them. `report` counts and prints, `log` keeps Spark's
standard error, `session` starts Spark, `streams` watches over queries, and `stopping` is their
source, which ends on request. Each job has a module of its name; `command` is the command line.
Spark is imported only when a job runs, so that mistakes in a configuration show at once.
"""
