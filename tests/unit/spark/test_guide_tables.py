"""The tables of the pages about Spark have the keys, options and columns of the code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from guides import names, read, tables
from pydantic import TypeAdapter

pytest.importorskip("pyspark", reason="the group spark is not installed")

import spark_versions

from cykafka.spark.clients.properties import client_config
from cykafka.spark.jobs.config import table_formats
from cykafka.spark.jobs.config.checks import REGISTRY
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS, TABLES
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.sink import write_options
from cykafka.spark.source.read_options import READ_OPTIONS, ReadOptions
from cykafka.spark.source.schema import source_schema

# -- tables of keys


def with_defaults(several: list[str], cell: str) -> list[tuple[str, str]]:
    """Names and their defaults, from a cell with one default for all or with one for each."""
    defaults = cell.split(", ")
    return list(zip(several, defaults * (len(several) // len(defaults)), strict=True))


ALL = tuple(JOBS)
STREAMS = ("archive", "mirror", "redrive")
ARCHIVES = ("archive", "replay", "compact")
# The tables of keys: the page, its section, the number of the table in it, the jobs.
KEYS: list[tuple[str, str, int, tuple[str, ...]]] = [
    ("docs/spark-jobs.md", "Configuration", 1, ALL),
    ("docs/spark-jobs.md", "Streams", 0, STREAMS),
    ("docs/spark-jobs.md", "profile", 0, ("profile",)),
    *(("docs/spark-archive.md", job, 0, (job,)) for job in ("archive", "replay")),
    *(("docs/spark-mirror.md", job, 0, (job,)) for job in ("mirror", "redrive")),
    ("docs/spark-tables.md", "Archives that are tables", 0, ARCHIVES),
    ("docs/spark-tables.md", "Archives that are tables", 1, ("archive",)),
    ("docs/spark-tables.md", "Compaction", 0, ("compact",)),
    ("docs/spark-schemas.md", "Reading", 0, ("archive", "mirror")),
    ("docs/spark-schemas.md", "Writing", 0, ("mirror", "replay")),
    ("docs/spark-observing.md", "Watch a job", 1, ALL),
]
# Defaults that the job computes, in words.
COMPUTED = {
    "", "none", "all", "the record's own topic", "the transform's column `topic`",
    "`<path>.unfinished`", "`TOPIC-value:latest`", "`local[*]`", "`cykafka <job>`",
}  # fmt: skip


def fields(job: str) -> dict[str, Any]:
    """The keys of a job."""
    return {field.alias or name: field for name, field in JOBS[job].model_fields.items()}


def rows_of(page: str, title: str, number: int) -> list[tuple[str, str, str]]:
    """The key, the default and the description of each key of a table."""
    return [
        (key, default, words)
        for cell, defaults, words in tables(page, title)[number]
        for key, default in with_defaults(names(cell), defaults)
    ]


@pytest.mark.parametrize(("page", "title", "number", "jobs"), KEYS, ids=str)
def test_table_has_the_defaults_of_the_keys(
    page: str, title: str, number: int, jobs: tuple[str, ...]
) -> None:
    for job in jobs:
        for key, default, words in rows_of(page, title, number):
            field = fields(job)[key]
            if default == "required":
                assert f'key "{key}" is missing' in missing(job)
            elif field.is_required():
                assert f"`{job}` requires it" in words
            elif field.default is None:
                assert default in COMPUTED, key
            else:
                text = default.strip("`")
                text = text.replace(",", "") if re.fullmatch(r"[\d,]+", text) else text
                kind: Any = TypeAdapter(Annotated[field.annotation, *field.metadata, ""])
                assert kind.validate_python(text or "none") == field.default, key


def missing(job: str) -> str:
    """The keys that a job misses without a configuration."""
    with pytest.raises(ConfigError) as raised:
        load(JOBS[job], None, {}, {})
    return "\n".join(raised.value.problems)


@pytest.mark.parametrize("job", JOBS)
def test_tables_have_all_keys_of_a_job(job: str) -> None:
    listed = [row[0] for page, title, number, jobs in KEYS if job in jobs
              for row in rows_of(page, title, number)]  # fmt: skip
    rows = tables("docs/spark-jobs.md", "Configuration")[0]
    options = {names(row[0])[0].strip("[]") for row in rows}

    assert options == set(TABLES)
    assert {*listed, "job"} == fields(job).keys() - options


@pytest.mark.parametrize("job", JOBS)
def test_tables_have_all_values_of_a_key(job: str) -> None:
    for key, field in fields(job).items():
        if get_origin(field.annotation) is not Literal or key == "job":
            continue
        words = " ".join(
            f"{default} {words}"
            for page, title, number, jobs in KEYS
            if job in jobs
            for name, default, words in rows_of(page, title, number)
            if name == key
        )
        if "as in `archive`" in words:
            continue
        assert set(get_args(field.annotation)) <= {*names(words)}, key


def test_table_of_formats_has_the_packages() -> None:
    (version, delta), = table_formats._DELTA.items()  # fmt: skip
    found = {names(row[0])[0]: (row[1], names(row[2])[0])
             for row in tables("docs/spark-tables.md", "Versions")[0]}  # fmt: skip

    assert found == {
        "delta": (version, delta),
        "iceberg": (f"{version} and newer", table_formats.package("iceberg")),
    }


# -- tables of options

BROKERS = {"kafka.bootstrap.servers": "localhost:1"}


def check_defaults(rows: list[list[str]], read_options: Callable[[dict[str, str]], Any]) -> None:
    """Check that to set an option to its default changes nothing."""
    for cells in rows:
        for name, default in with_defaults(names(cells[0]), cells[1]):
            if default not in ("", "none", "required"):
                assert read_options({name: default.strip("`")}) == read_options({}), name


def test_options_of_the_source_are_those_of_the_table() -> None:
    (rows,) = tables("docs/spark.md", "Options")
    listed = [name for row in rows for name in names(row[0]) if not name.startswith("kafka.")]

    assert listed == [*READ_OPTIONS]
    for mode, other in (("batch", "streams only"), ("stream", "batches only")):

        def of(given: dict[str, str], mode: Any = mode) -> ReadOptions:
            return ReadOptions.of({**BROKERS, "subscribe": "t", **given}, mode)

        here = [
            [cells[0], f"`{by_mode[mode]}`" if (by_mode := modes(cells[1])) else cells[1]]
            for cells in rows
            if other not in cells[2]
        ]
        check_defaults(here, of)


def modes(cell: str) -> dict[str, str]:
    found = re.fullmatch("`(.*)` for batches, `(.*)` for streams", cell)
    return {"batch": found[1], "stream": found[2]} if found else {}


def test_options_of_the_sink_are_those_of_the_table() -> None:
    (rows,) = tables("docs/spark-sink.md", "Options")
    listed = [name for row in rows for name in names(row[0]) if not name.startswith("kafka.")]
    schema = source_schema(True)

    assert listed == [*write_options._OPTIONS]
    check_defaults(
        rows, lambda given: write_options.write_options({**BROKERS, **given}, schema, True)
    )


def test_columns_are_those_of_the_tables() -> None:
    (read_rows,) = tables("docs/spark.md", "Columns")
    (write_rows,) = tables("docs/spark-sink.md", "Columns")
    listed = {
        name: re.sub(r"\s", "", row[1]).replace("&lt;", "<").replace("&gt;", ">")
        for row in read_rows
        for name in names(row[0])
    }
    schema = source_schema(True)

    assert listed == {each.name: each.dataType.simpleString() for each in schema}
    assert [*listed] == schema.names
    written = {name for row in write_rows for name in names(row[0])}
    assert written == {*write_options._COLUMNS}


def test_options_of_the_registry_are_those_of_the_table() -> None:
    (rows,) = tables("docs/spark-schemas.md", "The registry")
    listed = {name for row in rows for cell in (row[0], row[2]) for name in names(cell)}

    # Those with one possible value are not worth a row.
    assert {name for name in REGISTRY if not name.endswith("credentials.source")} <= listed
    for row in rows:
        for name, default in with_defaults(names(row[0]), row[1]):
            if default not in ("required", "the system's"):
                assert REGISTRY[name] == default.strip("`")
    assert {name for row in rows for name in names(row[0])} <= REGISTRY.keys()


def test_properties_of_the_jvm_client_become_what_the_table_says() -> None:
    rows = tables("docs/spark-sink.md", "Properties of the JVM client")[0]
    refused = [name for row in rows if row[1].startswith("an error") for name in names(row[0])]

    def named(outcome: str) -> list[str]:
        return names(next(row[0] for row in rows if row[1].startswith(outcome)))

    def config(name: str) -> dict[str, str]:
        return client_config({**BROKERS, f"kafka.{name}": "2048"}, role="source")

    assert len(named("become")) == 5
    for name in named("become"):
        assert name not in config(name)
        assert len(config(name)) == len(config("socket.timeout.ms"))
    assert config("request.timeout.ms")["socket.timeout.ms"] == "2048"
    assert len(named("ignored")) == 2
    for name in named("ignored"):
        with pytest.warns(UserWarning, match=name):
            config(name)
    assert len(refused) == 5
    for name in refused:
        with pytest.raises(ValueError, match=name):
            config(name)


def test_defaults_of_properties_are_those_of_the_page() -> None:
    found = re.findall(r"^- `([\w.]+)=(\w+)` for (source|sink)s", read("docs/spark-sink.md"), re.M)
    schema = source_schema(False)
    sink = write_options.write_options({**BROKERS, "topic": "t"}, schema, False).config
    defaults = {"source": client_config(BROKERS, role="source"), "sink": sink}

    assert len(found) == 5
    for name, value, role in found:
        assert defaults[role][name] == value


def test_table_of_versions_has_the_checks_of_make_spark_versions() -> None:
    (rows,) = tables("docs/spark-clusters.md", "Versions of Spark")

    assert [row[0] for row in rows] == [name.replace("_", " ") for name in spark_versions.NAMES]
