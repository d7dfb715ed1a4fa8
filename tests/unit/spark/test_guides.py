"""The examples of the pages about Spark, as far as they need no Spark.

`spark_guides` lists the examples and the tests that check them.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import logging
import os
import re
import subprocess
import tomllib
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from guides import ROOT, Example, blocks, commands, example, examples, names, tables
from http_answers import get
from progress_reports import ID, first_report
from prometheus_client import CollectorRegistry
from spark_guides import CHECKS, NO_TEST

pytest.importorskip("pyspark", reason="the group spark is not installed")

import spark_servers

from cykafka.spark.clients.properties import REDACTED
from cykafka.spark.jobs.command import main
from cykafka.spark.jobs.config import table_formats
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.observing.endpoint import Endpoint, JobMetrics
from cykafka.spark.jobs.observing.logs import JsonFormatter
from cykafka.spark.jobs.observing.report import Health, Summary
from cykafka.spark.jobs.run.streams import Tally
from cykafka.spark.metrics import QueryMetrics

JOB = ["python", "-m", "cykafka.spark"]
# What the commands of the pages need beside their options.
FILES = {
    "archive.toml": 'topics = ["orders"]\npath = "/data/a"\ncheckpoint = "/data/c"\n',
    "mirror.toml": 'topics = ["orders"]\nto = "copies"\ncheckpoint = "/data/c"\n',
}
PAGES = list(CHECKS)


# -- the list of examples


def test_list_has_all_pages() -> None:
    assert set(PAGES) == {f"docs/{each.name}" for each in ROOT.glob("docs/spark*.md")}


@pytest.mark.parametrize("page", PAGES)
def test_each_block_of_a_page_is_in_the_list(page: str) -> None:
    found = examples(page)

    for block, (words, _) in zip(found, CHECKS[page], strict=True):
        assert words in block.text
        assert sum(words in each.text for each in found) == 1, f"{words} is in several blocks"


def test_list_names_existing_tests() -> None:
    for page, checks in CHECKS.items():
        for _, check in checks:
            if check.startswith(NO_TEST):
                continue
            path, test = check.split("::")
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            assert test in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
            text = " ".join(texts_of(path))
            assert f'"{page}"' in text or "in PAGES" in text, (page, check)


def texts_of(path: str) -> list[str]:
    """The text of a test, and of the programs and servers that it starts."""
    helpers = {
        "tests/spark/test_connect.py": ["tests/spark/connect_client.py"],
        "tests/spark/test_standalone.py": ["tests/shared/spark_servers.py"],
    }
    return [(ROOT / each).read_text(encoding="utf-8") for each in (path, *helpers.get(path, ()))]


# -- commands


def scripts() -> list[tuple[str, Example]]:
    """The blocks of commands of all pages."""
    return [(page, each) for page in PAGES for each in examples(page) if each.kind == ""]


def test_scripts_have_the_shells_syntax() -> None:
    found = scripts()
    assert len(found) >= 20
    text = "\n".join(each.text for _, each in found)

    subprocess.run(["bash", "-n"], input=text.encode(), check=True, timeout=60)


def test_commands_of_jobs_are_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(f'{text}[kafka]\nbootstrap.servers = "localhost:1"\n')
    monkeypatch.chdir(tmp_path)
    found = [
        words for _, each in scripts() for words in commands(each.text) if words[:3] == JOB
    ]  # fmt: skip
    assert {words[3] for words in found} == set(JOBS)

    for words in found:
        assert main([*words[3:], "--print-config"]) == 0, capsys.readouterr().err


def test_extras_that_pip_installs_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found = [
        word
        for _, each in scripts()
        for words in commands(each.text)
        if "pip" in " ".join(words[:3])
        for word in words[words.index("install") + 1 :]
    ]

    assert len(found) >= 7
    for word in found:
        name, wanted = re.fullmatch(r"([\w-]+)(?:\[(.*)\])?(?:>=.*)?", word).groups("")  # type: ignore[union-attr]
        assert name in ("cykafka", "pyarrow", "pyspark", "xxhash")
        if name == "pyarrow" and ">=" in word:
            assert word in extras["spark"]
        known = extras if name == "cykafka" else metadata_extras(name)
        assert set(filter(None, wanted.split(","))) <= set(known)


def metadata_extras(name: str) -> list[str]:
    return importlib.metadata.metadata(name).get_all("Provides-Extra") or []


def test_program_for_spark_submit_runs_a_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = example("docs/spark-clusters.md", "jobs.command import main")
    given = ["--topics", "orders", "--bootstrap-servers", "localhost:1", "--print-config"]
    monkeypatch.setattr("sys.argv", ["job.py", "profile", *given])

    with pytest.raises(SystemExit) as ended:
        exec(compile(program, "job.py", "exec"), {})

    assert ended.value.code == 0
    assert 'topics = ["orders"]' in capsys.readouterr().out
    file = (ROOT / "docs/kubernetes/job.py").read_text()
    assert ast.dump(ast.parse(program)) == ast.dump(ast.Module(ast.parse(file).body[1:], []))


def test_commands_for_kubernetes_name_files_and_the_image() -> None:
    (_, folder), build, push, _, apply = commands(example("docs/spark-kubernetes.md", "kubectl"))
    manifests = [apply[at + 1] for at, word in enumerate(apply) if word == "-f"]

    assert (ROOT / folder / "Dockerfile").exists()
    assert build[-3:-1] == ["-t", push[-1]]
    assert f"image: {push[-1]}\n" in (ROOT / folder / manifests[-1]).read_text()
    listed = {file for row in tables("docs/spark-kubernetes.md", "Spark on Kubernetes")[0]
              for file in names(row[0])}  # fmt: skip
    assert {*manifests} < listed == {path.name for path in (ROOT / folder).iterdir()}


def test_script_of_the_connect_server_exists() -> None:
    import pyspark

    script = commands(example("docs/spark-connect.md", "start-connect-server"))[-1][0]
    path = Path(script.replace("$SPARK_HOME", str(Path(pyspark.__file__).parent)))

    # tests/spark/test_connect.py starts this class.
    assert spark_servers.CONNECT in path.read_text()


def test_program_finds_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    exec(compile(example("docs/spark-clusters.md", "find_java"), "page", "exec"), {})

    assert os.environ["JAVA_HOME"] == str(tmp_path)


# -- configurations


def configured(page: str, words: str, job: str, folder: Path, **more: Any) -> Any:
    """A configuration of a page, with the keys that the page leaves out."""
    file = folder / "job.toml"
    file.write_text(example(page, words))
    return load(JOBS[job], str(file), more, {"CATALOG_CREDENTIAL": "user:secret"})


BROKERS = {"kafka.bootstrap.servers": "localhost:1"}
GIVEN = {**BROKERS, "topics": "orders", "checkpoint": "/c"}


def test_configuration_with_jars_of_delta_is_valid(tmp_path: Path) -> None:
    more = {**GIVEN, "path": "/data/orders"}
    config = configured("docs/spark-tables.md", 'format = "delta"', "archive", tmp_path, **more)

    assert "spark.jars.packages" not in table_formats.settings(config, config.spark_options())


def test_configuration_with_a_catalog_is_valid(tmp_path: Path) -> None:
    page, words = "docs/spark-tables.md", "lake.kafka.orders"
    for job, more in {"archive": GIVEN, "replay": BROKERS, "compact": {}}.items():
        config = configured(page, words, job, tmp_path, **more)
        assert config.spark_options() == {
            "spark.sql.catalog.lake.type": "rest",
            "spark.sql.catalog.lake.uri": "http://catalog:8181",
            "spark.sql.catalog.lake.credential": "user:secret",
        }


def test_redaction_is_that_of_the_jobs() -> None:
    name, pattern = example("docs/spark-sink.md", "spark.redaction.regex").split()

    assert (name, pattern) == ("spark.redaction.regex", REDACTED)


# -- what jobs say


def test_summary_is_that_of_the_page() -> None:
    summary = Summary("archive", 1_000_000, 108_000_000, seconds=4.1)
    for partition in range(4):
        summary.add_range("orders", partition, 0, 250_000)

    assert summary.lines() == example("docs/spark-jobs.md", "archive finished").splitlines()


def test_answer_of_health_is_that_of_the_page() -> None:
    now = [100.0]
    health = Health(300.0, lambda: now[0])
    health.note_progress()
    now[0] += 301
    health.note_response()
    health.note_activity("Getting offsets from Kafka")

    with closing(
        Endpoint("127.0.0.1:0", "mirror", JobMetrics("mirror", health, {}), health)
    ) as server:
        status, body = get(f"{server.url}/ready")

    assert (status, body.strip()) == (503, blocks("docs/spark-observing.md", "json")[0].strip())


def test_line_of_the_log_is_that_of_the_page() -> None:
    summary = Summary("mirror", 1000, 105_500, batches=4)
    tally = Tally(summary)
    tally._last, tally.speed, tally.lag = 3, 500.0, {("orders", 0): 0}
    created = datetime.fromisoformat("2026-01-31T12:00:10.123Z").timestamp()
    record = logging.makeLogRecord(
        {"msg": tally.words(), "levelname": "INFO", "name": "cykafka.spark.jobs",
         "created": created, **tally.fields()}
    )  # fmt: skip

    line = JsonFormatter("mirror").format(record)

    assert json.loads(line) == json.loads(blocks("docs/spark-observing.md", "json")[1])


# -- watching


def documents(words: str) -> Any:
    return yaml.safe_load(example("docs/spark-observing.md", words))


def test_probes_are_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    container = documents("livenessProbe")
    pod = {"terminationGracePeriodSeconds": container.pop("terminationGracePeriodSeconds"),
           "containers": [{"name": "mirror", "image": "x", **container}]}  # fmt: skip
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "m"}, "spec": pod}
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    file = tmp_path / "mirror.toml"
    file.write_text(FILES["mirror.toml"] + '[kafka]\nbootstrap.servers = "localhost:1"\n')
    arguments = [word.replace("/etc/mirror.toml", str(file)) for word in container["args"]]

    assert container["command"] == ["python3", *JOB[1:]]
    assert main([*arguments, "--print-config"]) == 0
    written = tomllib.loads(capsys.readouterr().out)
    (port,) = container["ports"]
    assert written["metrics"].endswith(f":{port['containerPort']}")
    assert pod["terminationGracePeriodSeconds"] > written["stop_timeout"]
    probes = [container[each]["httpGet"] for each in ("livenessProbe", "readinessProbe")]
    assert [(each["port"], each["path"]) for each in probes] == [
        (port["name"], "/health"), (port["name"], "/ready"),
    ]  # fmt: skip


def test_prometheus_reads_the_port_of_the_probes() -> None:
    (job,) = documents("scrape_configs")["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    (port,) = documents("livenessProbe")["ports"]

    assert target.endswith(f":{port['containerPort']}")
    # The alerts look for this job.
    assert f'up{{job="{job["job_name"]}"}}' in example("docs/spark-observing.md", "alert:")


@pytest.fixture
def exported() -> dict[str, set[str]]:
    """The metrics of jobs and queries, with their labels."""
    summary = Summary("mirror", counts={"sent": 1})
    names_of_info = ("kind", "version", "librdkafka", "pyspark")
    jobs = JobMetrics("mirror", Health(), dict.fromkeys(names_of_info, "x"))
    Tally(summary, metrics=jobs).add_reports([first_report()])
    jobs.set_summary(summary)
    queries = CollectorRegistry()
    listener: Any = QueryMetrics(registry=queries)
    listener.onQueryStarted(SimpleNamespace(id=ID, name="mine"))
    listener.take(first_report())
    return {
        sample.name: {*sample.labels, "instance", "job"}
        for registry in (jobs.registry, queries)
        for family in registry.collect()
        for sample in family.samples
    }


def check_query(query: str, exported: dict[str, set[str]]) -> None:
    """Check that Prometheus has the metrics and the labels of a query."""
    metrics = set(re.findall(r"\b(?:cykafka|process)_\w+", query))
    assert metrics <= exported.keys(), query
    labels = {
        label.strip()
        for words in re.findall(r"\bby \((.*?)\)|\{(.*?)\}", query)
        for label in re.findall(r"(\w+)(?=\s*(?:,|$|=))", re.sub(r'"[^"]*"', "", "".join(words)))
    }
    assert labels <= {"job", "instance", *(each for name in metrics for each in exported[name])}
    assert query.count("(") == query.count(")")


def test_alerts_ask_for_exported_metrics(exported: dict[str, set[str]]) -> None:
    (group,) = documents("alert:")["groups"]

    assert len(group["rules"]) >= 5
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for"}
        check_query(rule["expr"], exported)


def test_dashboard_asks_for_exported_metrics(exported: dict[str, set[str]]) -> None:
    found: dict[str, Any] = {}
    exec(compile(example("docs/spark-observing.md", "grafana"), "page", "exec"), found)
    dashboard = json.loads(found["dashboard"])

    queries = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    assert len(queries) >= 20
    for query in queries:
        check_query(query, exported)
