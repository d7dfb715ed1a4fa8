"""How each example on the pages about Spark is checked.

The lists have an entry for each block of code, in the page's order: words that only this block of
the page has, and the test that checks it. If no test can run the block, the entry says why.
"""

from __future__ import annotations

__all__ = ["CHECKS", "NO_TEST"]

NO_TEST = "no test: "

_UNIT = "tests/unit/spark/test_guides.py::"
_SPARK = "tests/spark/test_guides.py::"
_JOBS = "tests/spark/jobs/test_guides.py::"
_PIP = _UNIT + "test_extras_that_pip_installs_exist"
_LINES = _UNIT + "test_commands_of_jobs_are_valid"
_SUBMIT = _SPARK + "test_commands_for_spark_submit_are_valid"

CHECKS: dict[str, list[tuple[str, str]]] = {
    "docs/spark.md": [
        ("pip install", _PIP),
        ("offset\").show()", _SPARK + "test_first_example_shows_records"),
        ("CREATE TEMPORARY VIEW", _SPARK + "test_view_reads_records"),
        ("filterPushdown", _SPARK + "test_pushdown_reads_only_what_the_filters_select"),
    ],
    "docs/spark-streams.md": [
        ("stream = (", _SPARK + "test_stream_writes_what_the_topic_has"),
    ],
    "docs/spark-speed.md": [],
    "docs/spark-sink.md": [
        ('writeStream.format("cykafka")', _SPARK + "test_stream_writes_to_a_topic"),
        ("def write(batch, number)", _SPARK + "test_mode_update_writes_by_foreach_batch"),
        ("KafkaWriteError", _SPARK + "test_error_is_like_that_of_the_page"),
        ("spark.redaction.regex", _UNIT + "test_redaction_is_that_of_the_jobs"),
    ],
    "docs/spark-jobs.md": [
        ("cykafka.spark archive", _JOBS + "test_first_command_archives_a_topic"),
        ('job = "archive"', _JOBS + "test_configuration_archives_with_a_login"),
        ("archive finished", _UNIT + "test_summary_is_that_of_the_page"),
        ("cykafka.spark profile", _JOBS + "test_mirror_redrive_and_profile_work_in_turn"),
    ],
    "docs/spark-archive.md": [],
    "docs/spark-mirror.md": [
        ('job = "mirror"', _JOBS + "test_mirror_redrive_and_profile_work_in_turn"),
        ("cykafka.spark redrive", _JOBS + "test_mirror_redrive_and_profile_work_in_turn"),
    ],
    "docs/spark-tables.md": [
        ("cykafka.spark compact", _JOBS + "test_commands_of_tables_work_in_turn"),
        ('format = "delta"', _UNIT + "test_configuration_with_jars_of_delta_is_valid"),
        ("lake.kafka.orders", _UNIT + "test_configuration_with_a_catalog_is_valid"),
    ],
    "docs/spark-schemas.md": [
        ("pip install", _PIP),
        ('job = "archive"', "tests/spark/jobs/test_schemas_guide.py::test_guide"),
        ('job = "mirror"', "tests/spark/jobs/test_schemas_guide.py::test_guide"),
        ('job = "replay"', "tests/spark/jobs/test_schemas_guide.py::test_guide"),
    ],
    "docs/spark-observing.md": [
        ("cykafka.spark mirror", _JOBS + "test_mirror_redrive_and_profile_work_in_turn"),
        ('"unavailable"', _UNIT + "test_answer_of_health_is_that_of_the_page"),
        ("livenessProbe", _UNIT + "test_probes_are_valid"),
        ("scrape_configs", _UNIT + "test_prometheus_reads_the_port_of_the_probes"),
        ("alert:", _UNIT + "test_alerts_ask_for_exported_metrics"),
        ("grafana", _UNIT + "test_dashboard_asks_for_exported_metrics"),
        ('"level"', _UNIT + "test_line_of_the_log_is_that_of_the_page"),
        ("QueryMetrics", _SPARK + "test_queries_are_observed"),
    ],
    "docs/spark-clusters.md": [
        ("conda pack", NO_TEST + "it installs conda's packages from the network"),
        ("-m venv environment", NO_TEST + "it installs cykafka from an index of packages"),
        ("unset PYSPARK_DRIVER_PYTHON\nexport", _SUBMIT),
        ("--master yarn --spark-conf", _LINES),
        ("jobs.command import main", _UNIT + "test_program_for_spark_submit_runs_a_job"),
        ("'pyarrow>=18'", _PIP),
        ("unpacked here, too", _SUBMIT),
        ("deploy.master.Master", "tests/spark/test_standalone.py::"
                        "test_every_record_arrives_although_a_worker_dies"),
        ("find_java", _UNIT + "test_program_finds_java"),
        ("def where", _SPARK + "test_worker_tells_its_python_and_package"),
    ],
    "docs/spark-yarn.md": [
        ("hdfs dfs", _SUBMIT),
    ],
    "docs/spark-kubernetes.md": [
        ("kubectl", _UNIT + "test_commands_for_kubernetes_name_files_and_the_image"),
        ("local:///opt/app/app.py", _SUBMIT),
    ],
    "docs/spark-connect.md": [
        ("start-connect-server", _UNIT + "test_script_of_the_connect_server_exists"),
        ('"pyspark[connect]"', _PIP),
        ('remote("sc://', "tests/spark/test_connect.py::"
                          "test_source_sink_and_jobs_work_without_a_jvm"),
        ("--config archive.toml", _LINES),
    ],
}  # fmt: skip
