"""The configuration of jobs is read, completed and checked before Spark starts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from cykafka.spark.jobs.config.fields import Duration
from cykafka.spark.jobs.config.load import load, to_toml
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.run.streams import most_offsets

DURATION: TypeAdapter[float] = TypeAdapter(Duration)
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ENOUGH: dict[str, dict[str, Any]] = {
    "archive": {"topics": "a", "path": "/p", "checkpoint": "/c"},
    "replay": {"path": "/p"},
    "compact": {"path": "/p", "format": "iceberg"},
    "mirror": {"topics": "a", "to": "b", "checkpoint": "/c"},
    "redrive": {"topics": "a.dlq", "checkpoint": "/c"},
    "profile": {"topics": "a"},
}


def loaded(job: str, environment: Mapping[str, str] | None = None, **given: Any) -> Any:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return load(JOBS[job], None, {**SERVERS, **ENOUGH[job], **named}, environment or {})


def problems(job: str, given: Mapping[str, Any], file: Path | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(JOBS[job], str(file) if file else None, given, {})
    return caught.value.problems


@pytest.mark.parametrize("job", JOBS)
def test_a_job_needs_no_more_than_its_required_keys(job: str) -> None:
    config = loaded(job)

    assert config.job == job
    assert isinstance(config, JOBS[job])


@pytest.mark.parametrize("job", JOBS)
def test_all_missing_keys_are_reported_at_once(job: str) -> None:
    text = "\n".join(problems(job, {}))

    keys = JOBS[job].model_fields
    required = [name for name, key in keys.items() if key.is_required()]
    assert job in ("profile", "replay") or required
    for name in required:
        assert f'key "{name}" is missing' in text
    assert job == "compact" or "kafka.bootstrap.servers" in text
    assert job not in ("archive", "replay") or 'key "path" is missing' in text
    if job not in ("replay", "compact"):
        assert 'key "topics" is missing' in text


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        """
        job = "archive"
        topics = ["orders", "payments"]
        path = "/data"
        checkpoint = "/checkpoint"
        compression = "gzip"
        interval = "2 minutes"
        trigger = "continuous"
        keep_raw = true
        [kafka]
        bootstrap.servers = "one:9092"
        [source]
        maxOffsetsPerTrigger = 1000
        kafka.fetch.min.bytes = 1
        [spark]
        executor.memory = "4g"
        """
    )

    config = load(JOBS["archive"], str(file), {"compression": "zstd", "topics": "a,b"}, {})

    assert (config.topics, config.compression) == (["a", "b"], "zstd")
    assert (config.interval, config.file_names) == (120.0, "spark")
    assert config.source_options() == {
        "kafka.bootstrap.servers": "one:9092",
        "kafka.fetch.min.bytes": "1",
        "maxOffsetsPerTrigger": "1000",
        "subscribe": "a,b",
    }
    assert config.spark_options() == {"spark.executor.memory": "4g"}


def test_sink_may_have_its_own_brokers() -> None:
    config = loaded("mirror", sink__kafka__bootstrap__servers="other:9092", to="a")

    assert config.sink_options()["kafka.bootstrap.servers"] == "other:9092"
    assert config.source_options()["kafka.bootstrap.servers"] == "localhost:9092"


@pytest.mark.parametrize(
    ("given", "expected_text"),
    [
        ({"file_name": "x"}, 'key "file_name": job archive has no such key; did you mean "file_n'),
        ({"sasl.password": "x"}, "belong into the table [kafka]"),
        ({"sink.topic": "x"}, "job archive has no table [sink]"),
        ({"topics": ["a", 1]}, 'key "topics[1]" = 1: expected a text'),
        ({"topics": []}, "expected a list of at least one"),
        ({"topics": "a,a"}, "'a' appears more than once"),
        ({"topics": "a/b"}, "expected a topic name"),
        ({"topic_pattern": "a.*"}, '"topics" and "topic_pattern" are both set'),
        ({"compression": "zst"}, 'did you mean "zstd"'),
        ({"interval": "soon"}, "key \"interval\" = 'soon': expected a duration"),
        ({"keep_raw": "perhaps"}, "expected true or false"),
        ({"keep_raw": "no"}, 'without "decode" or "schema" the files'),
        ({"checkpoint": "/p/c"}, 'it must not be inside "path"'),
        ({"checkpoint": "file:/p/c"}, 'it must not be inside "path"'),
        ({"checkpoint": "file:///p/c"}, 'it must not be inside "path"'),
        ({"checkpoint": "/x/../p/c/"}, 'it must not be inside "path"'),
        ({"checkpoint": "p/c", "path": str(Path("p").absolute())}, 'not be inside "path"'),
        ({"checkpoint": "hdfs://h/p/./c", "path": "hdfs://h/p"}, 'it must not be inside "path"'),
        ({"checkpoint": "hdfs://h//p/c", "path": "hdfs://h/p"}, 'it must not be inside "path"'),
        ({"checkpoint": __file__}, "expected a directory, got a file"),
        ({"path": f"file:{__file__}"}, "expected a directory, got a file"),
        ({"staging": "/s"}, 'no effect without file_names = "deterministic"'),
        ({"source.maxOffsetPerTrigger": "5"}, 'did you mean "maxOffsetsPerTrigger"'),
        ({"source.maxOffsetsPerTrigger": "many"}, 'key "source.maxOffsetsPerTrigger"'),
        ({"source.endingOffsets": "latest"}, "a stream ends after the existing records"),
        ({"source.subscribe": "a"}, 'use the key "topics"'),
        ({"source.includeHeaders": "true"}, "the job decides that"),
        ({"source.readOn": "driver"}, "jobs read on the executors"),
        ({"source.startingOffsets": "first"}, 'key "source.startingOffsets"'),
        ({"kafka.bootstrap.server": "x"}, 'did you mean "kafka.bootstrap.servers"'),
        ({"kafka.auto.offset.reset": "latest"}, 'key "kafka.auto.offset.reset"'),
        ({"schema": "/no/such/file"}, "neither DDL ('id BIGINT, name STRING') nor a file"),
        ({"schema": '{"type": "object"}'}, 'expected a JSON Schema of an object with "propert'),
        ({"summary": "/no/such/folder/s.json"}, "the directory /no/such/folder does not exist"),
    ],
)
def test_configuration_error_names_its_key_and_the_expected_value(
    given: dict[str, Any], expected_text: str
) -> None:
    found = problems("archive", {**SERVERS, **ENOUGH["archive"], **given})

    assert len(found) == 1, found
    assert expected_text in found[0]


@pytest.mark.parametrize(
    ("job", "given", "expected_text"),
    [
        ("replay", {"from_offset": 5, "until_offset": 5}, '"from_offset" and "until_offset"'),
        ("replay", {"from_time": "2026-02-30"}, "expected a time"),
        (
            "replay",
            {"partitions": "0,x"},
            "key \"partitions[1]\" = 'x': expected a whole number",
        ),
        ("replay", {"rate": 0}, "expected a number greater than 0"),
        (
            "redrive",
            {"sink.transactional": True, "sink.transactionalIdPrefix": "x"},
            "a repeated micro-batch must send the same records",
        ),
        ("replay", {"source.assign": "{}"}, "job replay has no table [source]"),
        ("mirror", {"to": "a"}, "key \"to\" = 'a': the job reads this topic"),
        ("mirror", {"dead_letter_topic": "b"}, 'it is the same as "to"'),
        ("mirror", {"sink.topic": "b"}, 'use the key "to"'),
        ("mirror", {"sink.transactionl": "true"}, 'did you mean "transactional"'),
        (
            "mirror",
            {
                "sink.transactional": True,
                "sink.transactionalIdPrefix": "x",
                "transform": "SELECT value FROM records",
                "schema": "a INT",
            },
            'key "sink.transactional"',
        ),
        ("mirror", {"sink.transactional": True}, 'key "sink.transactionalIdPrefix" is missing'),
        ("mirror", {"sink.transactionalIdPrefix": "x"}, "without transactional=true"),
        (
            "mirror",
            {"sink.transactional": True, "sink.transactionalIdPrefix": "x", "kafka.acks": "1"},
            "needs an idempotent producer",
        ),
        ("replay", {"sink.transactional": True}, "only streams have transactions"),
        ("redrive", {"parking_topic": "a.dlq"}, "it would read its own records again"),
        ("archive", {"file_names": "deterministic", "staging": "/c"}, 'not be inside "checkpoint'),
        ("redrive", {"max_attempts": 0}, "expected a whole number of at least 1"),
    ],
)
def test_jobs_check_contradictions_between_keys(
    job: str, given: dict[str, Any], expected_text: str
) -> None:
    found = problems(job, {**SERVERS, **ENOUGH[job], **given})

    assert len(found) == 1, found
    assert expected_text in found[0]


def test_all_mistakes_of_options_are_reported_together() -> None:
    given = {
        **ENOUGH["mirror"],
        "kafka.linger_ms": 3,
        "kafka.sasl.pasword": "x",
        "kafka.queue.buffering.max.kbytes": "soon",
        "kafka.security.protocol": "SASL_TLS",
        "source.startingOffsets": "first",
        "sink.kafka.compression.type": "rar",
    }

    found = problems("mirror", given)

    for key in (
        "kafka.bootstrap.servers", "kafka.linger_ms", "kafka.sasl.pasword",
        "kafka.queue.buffering.max.kbytes", "kafka.security.protocol", "source.startingOffsets",
        "kafka.compression.type",
    ):  # fmt: skip
        assert len([text for text in found if f'key "{key}"' in text]) == 1, (key, found)
    assert len(found) == 7, found


@pytest.mark.parametrize(
    ("checkpoint", "path"),
    [("/p-2", "/p"), ("/p/../c", "/p"), ("hdfs://h/p/c", "/p"), ("hdfs://h/p/c", "hdfs://g/p"),
     ("/p", "/p/archive"), ("s3a://p/c", "s3a://q/p")],
)  # fmt: skip
def test_sibling_folders_are_allowed(checkpoint: str, path: str) -> None:
    assert loaded("archive", checkpoint=checkpoint, path=path).path == path


def test_folder_behind_a_link_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "p")
    folders = {"path": str(tmp_path / "p"), "checkpoint": str(tmp_path / "link" / "c")}

    (text,) = problems("archive", {**SERVERS, "topics": "a", **folders})

    assert 'it must not be inside "path"' in text


def test_key_without_effect_logs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One file may serve a continuous run and a run that only catches up."""
    file = tmp_path / "job.toml"
    file.write_text('trigger = "continuous"\ninterval = "1m"\n')
    given = {**SERVERS, **ENOUGH["archive"], "trigger": "available-now"}
    assert load(JOBS["archive"], str(file), given, {}).interval == 60
    assert 'key "interval" = 60 has no effect without trigger = "continuous"' in "\n".join(
        caplog.messages
    )

    load(JOBS["replay"], None, {**SERVERS, **ENOUGH["replay"], "step": 5}, {})
    assert 'key "step" = 5 has no effect without a "checkpoint"' in "\n".join(caplog.messages)


def test_spark_option_names_may_have_their_prefix(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        '[spark]\nspark.executor.memory = "4g"\n"spark.executor.cores" = 2\ndriver.cores = 1\n'
    )

    config = load(JOBS["archive"], str(file), {**SERVERS, **ENOUGH["archive"]}, {})

    assert config.spark_options() == {
        "spark.executor.memory": "4g",
        "spark.executor.cores": "2",
        "spark.driver.cores": "1",
    }


def test_mirror_without_a_target_is_a_configuration_error() -> None:
    text = problems("mirror", {**SERVERS, "topics": "a", "checkpoint": "/c"})

    assert len(text) == 1
    assert 'key "to" is missing' in text[0]


def test_transform_may_set_the_topic() -> None:
    given = {**SERVERS, "topics": "a", "checkpoint": "/c"}
    query = "SELECT value, 'x' AS topic FROM records;\n"

    config = load(JOBS["mirror"], None, {**given, "transform": query}, {})

    assert config.transform == "SELECT value, 'x' AS topic FROM records"


def test_all_configuration_errors_are_reported_together(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'topics = []\npath = "/p"\nchekpoint = "/c"\n[kafka]\n"sasl.password" = "${NOWHERE}"\n'
    )

    text = "\n".join(problems("archive", {"compression": "x"}, file))

    for words in (
        'key "topics" = []',
        'key "chekpoint": job archive has no such key; did you mean "checkpoint"?',
        'key "kafka.sasl.password": the environment has no variable NOWHERE',
        "key \"compression\" = 'x'",
        "bootstrap.servers",
    ):
        assert words in text
    # A wrong key is not reported as missing too.
    assert 'key "topics" is missing' not in text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"topics = [", "is not TOML"),
        (b"\xff = 1", "it is not UTF-8"),
        (b'job = "replay"', 'this file is for another job than "archive"'),
        (b"kafka = 1", 'key "kafka": expected a table, not a value'),
    ],
)
def test_invalid_file_is_a_configuration_error(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    file = tmp_path / "job.toml"
    file.write_bytes(content)

    assert expected in problems("archive", {}, file)[0]


def test_table_that_is_a_value_is_a_mistake_beside_options(
    tmp_path: Path,
) -> None:
    file = tmp_path / "job.toml"
    file.write_text("kafka = 1\n")

    assert 'key "kafka": expected a table' in problems("archive", SERVERS, file)[0]


def test_options_may_be_written_with_their_full_names(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        '"kafka.client.id" = "a"\nspark.executor.cores = 2\n'
        '[source]\n"kafka.fetch.min.bytes" = 1\n'
    )
    given = {**SERVERS, **ENOUGH["archive"], "source.pushdown": "false"}

    config = load(JOBS["archive"], str(file), given, {})

    assert config.source_options() == {
        "kafka.client.id": "a",
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.fetch.min.bytes": "1",
        "pushdown": "false",
        "subscribe": "a",
    }
    assert config.spark_options() == {"spark.executor.cores": "2"}


def test_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    (text,) = problems("archive", {}, tmp_path / "none.toml")

    assert "none.toml cannot be read" in text


VALUES: list[tuple[str, list[Any], list[Any]]] = [
    ("max_attempts", [3, "3", " 3 ", "1_000"], [0, -1, 3.0, "3.0", "+5", 1e18, True, "", [3], {}]),
    ("keep_partitions", [True, False, "no", "ON", "1"], [0, 1, 1.0, "y", "t", "", [True], {}]),
    ("dry_run", ["true", "False"], ["perhaps", None]),
    ("topics", ["a", "a, b", ["a", "b"]], [[], "", "a,,b", ["a", "a"], ["a", 1], 5, True, {}]),
    ("where", ["x > 1", "x > 1;"], ["", "  ", 5, ["x"], {}]),
    ("topic_pattern", ["a.*"], ["(", "", 5]),
    ("interval", [0, 1.5, 0.00001, "5m"], [-1, True, "soon", 1e9, [1], {}]),
    ("trigger", ["continuous"], ["once", "", 1, ["continuous"]]),
]


@pytest.mark.parametrize(
    ("key", "value", "is_right"),
    [(key, value, True) for key, right, _ in VALUES for value in right]
    + [(key, value, False) for key, _, wrong in VALUES for value in wrong],
)
def test_values_have_one_form(key: str, value: Any, is_right: bool) -> None:
    given = {**SERVERS, **ENOUGH["redrive"], key: value}
    if key == "topic_pattern":
        del given["topics"]
    if is_right:
        load(JOBS["redrive"], None, given, {})
    else:
        (text,) = problems("redrive", given)
        assert f'key "{key}' in text
        assert "expected" in text or "appears more than once" in text


@pytest.mark.parametrize("value", [5, True, ["id INT"], {}, "", "~no-such-user/file", "[" * 9])
def test_wrong_schema_is_reported_with_the_other_mistakes(value: Any) -> None:
    given = {**SERVERS, **ENOUGH["archive"], "schema": value, "compression": "x"}

    assert sorted(text.split(":")[0] for text in problems("archive", given)) == [
        "key \"compression\" = 'x'",
        'key "schema"',
    ]


@pytest.mark.parametrize(
    "text",
    [
        '[[kafka]]\n"sasl.password" = "hunter22secret"\n',
        'kafka = "sasl.password=hunter22secret"\n',
        'kafka = ["hunter22secret"]\n',
        '["spark.hadoop"]\n"fs.s3a.secret.key" = ["hunter22secret"]\n',
        '"kafka.sasl" = {password = ["hunter22secret"]}\n',
        'keep_raw = "${PASSWORD}"\n',
        'topics = ["${PASSWORD}/"]\n',
    ],
)
def test_secrets_in_odd_places_are_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load(JOBS["archive"], str(file), {}, {"PASSWORD": "hunter22secret"})

    assert 'key "path" is missing' in str(caught.value)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "topics = " + "[" * 5_000 + "]" * 5_000,
        "topics = " + "9" * 5_000,
        "[a" + ".a" * 3_000 + "]",
        'path = "a\\u0000b"',
        f'summary = "{"x" * 300}/s.json"',
        f'checkpoint = "file:/{"x" * 300}"',
        'summary = "~no-such-user/s.json"',
        'topic_pattern = "a{99999999999999999999}"',
        'topic_pattern = "' + "(" * 3_000 + ")" * 3_000 + '"',
    ],
    ids=range(9),
)
def test_hostile_file_is_a_mistake(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text)

    assert problems("archive", {}, file)


def test_configuration_does_not_show_secrets_in_its_repr() -> None:
    assert "geheim" not in repr(loaded("profile", kafka__sasl__password="geheim"))


# -- the environment, secrets


def test_values_come_from_the_environment() -> None:
    config = loaded(
        "archive",
        {"WHERE": "data", "PASSWORD": "geheim"},
        path="/${WHERE}/archive",
        kafka__sasl__password="env:PASSWORD",
        app_name="$${WHERE}",
    )

    assert config.path == "/data/archive"
    assert config.source_options()["kafka.sasl.password"] == "geheim"
    assert config.app_name == "${WHERE}"


def test_the_printed_configuration_can_be_read_again_and_hides_secrets() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim1";'  # noqa: E501
    config = loaded(
        "archive",
        {"PASSWORD": "geheim2", "PLACE": "place"},
        path='/odd "\\ path',
        checkpoint="/${PLACE}",
        kafka__sasl__jaas__config=jaas,
        kafka__sasl__mechanism="PLAIN",
        spark__hadoop__fs__s3a__secret__key="env:PASSWORD",
        schema={"properties": {"a": {"type": "string"}}},
    )

    text = to_toml(config)

    assert "geheim" not in text
    document = tomllib.loads(text)
    assert document["path"] == '/odd "\\ path'
    assert document["checkpoint"] == "/${PLACE}"
    assert document["schema"] == {"properties": {"a": {"type": "string"}}}
    assert document["spark"]["hadoop.fs.s3a.secret.key"] == "********"


def test_secrets_are_scrubbed_from_foreign_texts() -> None:
    jaas = ' required username="u" password="geheim1";'
    config = loaded(
        "profile",
        kafka__sasl__jaas__config=f"org.apache.kafka.common.security.plain.PlainLoginModule{jaas}",
        kafka__sasl__mechanism="PLAIN",
        kafka__ssl__key__password="geheim2",
        kafka__client__id="public",
    )

    said = config.redact("refused geheim1 and geheim2, said public")

    assert said == "refused ******** and ********, said public"


def test_invalid_secret_is_not_printed() -> None:
    (text,) = problems("profile", {**SERVERS, "topics": "a", "kafka.sasl.password": ["geheim"]})

    assert "geheim" not in text
    assert 'key "kafka.sasl.password"' in text


# -- values


@pytest.mark.parametrize(
    ("value", "expected"),
    [(10, 10.0), ("10", 10.0), ("1.5 s", 1.5), ("200ms", 0.2), ("5 minutes", 300.0), ("2m", 120.0),
     ("1 hour", 3600.0), ("1d", 86400.0), ("30 seconds", 30.0), ("7 sec", 7.0)],
)  # fmt: skip
def test_durations_have_several_spellings(value: Any, expected: float) -> None:
    assert DURATION.validate_python(value) == pytest.approx(expected)


@pytest.mark.parametrize("value", ["", "s", "-1", "1 fortnight", True, None, "1 mo", "5 mi",
                                   "3 hou"])  # fmt: skip
def test_invalid_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="expected a duration"):
        DURATION.validate_python(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(5, 5), ("5", 5), (" 1970-01-02 ", 86_400_000), ("19700101T000001", 1000),
     ("1970-01-01T01", 3_600_000), ("1970-W01-4", 0), ("1970-01-01T00:00:01Z", 1000),
     ("1970-01-01T01:00:00+01:00", 0), ("1970-01-01T00:00:00.250", 250)],
)  # fmt: skip
def test_times_are_dates_or_milliseconds(value: Any, expected: int) -> None:
    assert loaded("replay", from_time=value).from_time == expected


def test_dates_of_toml_are_times(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text("from_time = 1970-01-02\nuntil_time = 1970-01-02T00:00:01Z\n")

    config = load(JOBS["replay"], str(file), {**SERVERS, "path": "/p"}, {})

    assert (config.from_time, config.until_time) == (86_400_000, 86_401_000)


def test_micro_batch_is_at_least_min_offsets_per_trigger() -> None:
    assert most_offsets({}) == most_offsets({"minOffsetsPerTrigger": "5"}) == 2_000_000
    assert most_offsets({"minoffsetspertrigger": "3000000"}) == 3_000_000
