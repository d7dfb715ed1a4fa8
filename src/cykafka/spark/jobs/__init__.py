"""Ready-made pipelines: ``python -m cykafka.spark <job> --config job.toml``.

- ``archive``: topics to Parquet, by topic and date
- ``replay``: Parquet to a topic
- ``mirror``: topic to topic, with an SQL transform
- ``redrive``: a dead letter topic back to where its records came from
- ``profile``: what topics hold, as tables and a chart

From bottom to top: `fields` has the types of values, `config` the keys of each job. `checks`
compares keys with one another, `load` reads a configuration. `report` counts and prints, `log`
keeps Spark's log, `json_log` writes the job's log as JSON. `metrics` exports the counts, `health`
knows whether the job makes progress, and `endpoint` serves both. `session` starts Spark. `streams`
watches queries; their source, `stopping`, ends them on request. Then each job has a module, and
`command` is the command line. Spark is imported only when a job runs, so that the command reports
mistakes in a configuration at once.
"""
