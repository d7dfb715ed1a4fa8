"""The commands and configurations of the pages about jobs run and do what the pages say.

They run in the folder's session. `spark_guides` lists the examples and the tests that check them.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acls import allow
from guides import commands, example
from spark_jobs import Bench, offsets_by_listing

from cykafka.admin import AclOperation, ResourceType
from cykafka.spark.jobs.command import main
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.observing.report import ProgressLine
from cykafka.spark.jobs.run.session import JobRun

PAGE, MIRROR = "docs/spark-jobs.md", "docs/spark-mirror.md"
TABLES, OBSERVING = "docs/spark-tables.md", "docs/spark-observing.md"
JOB = ["python", "-m", "cykafka.spark"]
TOPICS = ("orders", "orders-again", "orders-eur", "orders.dlq")


class Shell:
    """Runs a page's commands in this process, with topics and a folder of this test."""

    def __init__(self, servers: str, folder: Path, topics: dict[str, str]) -> None:
        self.servers = servers
        self.folder = folder
        self.topics = topics

    def own(self, text: str) -> str:
        text = text.replace("localhost:9092", self.servers).replace("/data", str(self.folder))
        text = text.replace("0.0.0.0:9464", "127.0.0.1:0")
        # The JVM of the session has another working directory.
        text = re.sub(r"--(path|checkpoint|summary|config) (?!/)", rf"--\1 {self.folder}/", text)
        for word, name in self.topics.items():
            text = re.sub(rf"(?<![\w./-]){re.escape(word)}(?![\w.-])", name, text)
        return text

    def run(self, text: str) -> None:
        for words in commands(self.own(text)):
            if words[:2] != ["pip", "install"]:
                assert words[:3] == JOB
                assert main(words[3:]) == 0


@pytest.fixture
def shell(
    bench: Bench, shared_session: None, cluster: Any, unique: Callable[[str], str], tmp_path: Path
) -> Shell:
    topics = {word: unique(word) for word in TOPICS}
    for name in topics.values():
        cluster.create_topic(name, 1, config={"retention.ms": -1})
    return Shell(bench.servers, tmp_path, topics)


def test_first_command_archives_a_topic(bench: Bench, shell: Shell) -> None:
    bench.send(shell.topics["orders"], [{"value": item} for item in ("tea", "milk")])

    shell.run(example(PAGE, "-m cykafka.spark archive"))

    rows = bench.spark.read.parquet(str(shell.folder / "archive")).orderBy("offset")
    assert [bytes(row.value) for row in rows.collect()] == [b"tea", b"milk"]
    (folder,) = shell.folder.glob("archive/topic=*/date=*")
    assert folder.parent.name == f"topic={shell.topics['orders']}"


def test_configuration_archives_with_a_login(
    spark: Any, secured: Any, stop_queries: None, unique: Callable[[str], str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    bench = Bench(spark, secured.bootstrap_servers, "")
    topics = {name: unique(name) for name in ("orders", "payments")}
    for name in topics.values():
        secured.create_topic(name, 1)
        allow(secured, "alice", ResourceType.TOPIC, name, AclOperation.ALL)
        bench.send(name, [{"value": "1"}, {"value": "2"}])
    login = secured.client_config("sasl_scram_sha_512_tls", "alice")
    text = Shell("", tmp_path, topics).own(example(PAGE, 'job = "archive"'))
    text = text.replace("kafka1:9092,kafka2:9092", login["bootstrap.servers"])
    text = text.replace('sasl.username = "archive"', 'sasl.username = "alice"')
    text = text.replace("[kafka]", f'[kafka]\nssl.ca.location = "{login["ssl.ca.location"]}"\n')
    (tmp_path / "job.toml").write_text(text)
    variables = {"KAFKA_PASSWORD": login["sasl.password"]}
    config = load(JOBS["archive"], str(tmp_path / "job.toml"), {}, variables)
    run = JobRun(spark, config, ProgressLine(0, io.StringIO()))
    assert run.config.kafka["security.protocol"] == login["security.protocol"]

    committed = tmp_path / "archive.checkpoint" / "commits" / "0"

    def stop_after_a_batch(*_: Any, **__: Any) -> None:
        run.stop.asked = int(committed.exists())

    monkeypatch.setattr(run.progress, "show", stop_after_a_batch)

    summary = bench.work("archive", run)

    assert (summary.outcome, summary.records) == ("stopped", 4)
    expected = Counter({(name, 0, offset): 1 for name in topics.values() for offset in (0, 1)})
    assert offsets_by_listing(str(tmp_path / "archive")) == expected


ORDERS = [
    '{"id": "1", "total": 5, "currency": "EUR"}',
    '{"id": "2", "total": -1, "currency": "EUR"}',
    '{"id": "3", "total": 5, "currency": "USD"}',
    "an order",
]


def test_mirror_redrive_and_profile_work_in_turn(
    bench: Bench, shell: Shell, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.send(shell.topics["orders"], [{"value": order} for order in ORDERS])
    file = shell.folder / "mirror.toml"
    file.write_text(shell.own(example(MIRROR, 'job = "mirror"')))

    shell.run(example(OBSERVING, "cykafka.spark mirror"))
    said = capfd.readouterr()
    first, *_, last = map(json.loads, said.err.splitlines())
    assert said.out == ""
    assert first["url"].startswith("http://127.0.0.1:")
    assert (last["message"], last["summary"]["bad"]) == ("mirror finished", 2)
    (sent,) = bench.read(shell.topics["orders-eur"], 1)
    assert json.loads(sent.value()) == {"id": "1", "total": 5.0, "currency": "EUR"}
    letters = bench.read(shell.topics["orders.dlq"], 2)
    assert {message.value().decode() for message in letters} == {ORDERS[1], ORDERS[3]}
    assert b"negative total" in [dict(message.headers())["dlq_error"] for message in letters]

    before = {path.name for path in shell.folder.iterdir()}
    shell.run(example(MIRROR, "cykafka.spark redrive"))
    out = capfd.readouterr().out
    assert "redrive finished (a dry run: nothing was sent)" in out
    assert re.search(rf"^ *{shell.topics['orders']} +2$", out, re.MULTILINE)
    assert len(bench.read(shell.topics["orders"])) == len(ORDERS)
    assert {path.name for path in shell.folder.iterdir()} == before

    shell.run(example(PAGE, "cykafka.spark profile"))
    assert "total" in capfd.readouterr().out
    report = json.loads((shell.folder / "orders.json").read_text())
    assert report["topics"][shell.topics["orders"]]["records"]


def test_commands_of_tables_work_in_turn(
    bench: Bench, shell: Shell, tables: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from cykafka.testing.plugin import no_broker

    if isinstance(tables["iceberg"], Exception):
        no_broker(tables["iceberg"])
    bench.send(shell.topics["orders"], [{"value": order} for order in ORDERS])

    shell.run(example(TABLES, "cykafka.spark compact"))

    copies = bench.read(shell.topics["orders-again"], len(ORDERS))
    assert [message.value().decode() for message in copies] == ORDERS
    said = capsys.readouterr().out
    assert re.findall(r"^(\w+) finished", said, re.MULTILINE) == ["archive", "compact", "replay"]
