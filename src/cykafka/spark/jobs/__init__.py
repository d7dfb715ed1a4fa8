"""Ready-made pipelines: ``python -m cykafka.spark <job> --config job.toml``.

- ``archive``: topics to Parquet, by topic and date
- ``replay``: Parquet to a topic
- ``mirror``: topic to topic, with an SQL transform
- ``redrive``: a dead letter topic back to the topics that its records came from
- ``profile``: the contents of topics, as tables

The layers from bottom to top: `problems` describes errors in words, and `schemas` the types of
values. `config` defines each job's keys, and reads and checks a configuration. `folders` accesses
directories on any file system. `records` contains record columns and send outcomes. `observing`
counts, prints, logs and serves metrics. `run` starts Spark and watches queries. `tables` handles
Delta and Iceberg. Each job is a package or a module (``redrive`` is in `mirror`, ``compact`` in
`tables`), and `command` is the command line. The command imports Spark only when a job runs, so
that it reports mistakes in a configuration at once.
"""
