"""Ready-made pipelines: ``python -m cykafka.spark <job> --config job.toml``.

- ``archive``: topics to Parquet, by topic and date
- ``replay``: Parquet to a topic
- ``mirror``: topic to topic, with an SQL transform
- ``redrive``: a dead letter topic back to where its records came from
- ``profile``: what topics hold, as tables and a chart

From bottom to top: `keys` says what can be configured, `config` reads and `checks` judges it,
`report` counts and prints, `log` keeps what Spark says, `session` starts Spark, `streams` watches
over queries, whose source (`stopping`) can be told that there is no more; then a module for each
job; `command` is the command line. Spark is imported only when a job runs: mistakes in a
configuration are told at once.
"""
