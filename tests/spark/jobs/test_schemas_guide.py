"""The configurations of docs/spark-schemas.md run and do what the page says."""

from __future__ import annotations

import io
import json
import re
import ssl
import tomllib
from pathlib import Path
from typing import Any

import fastavro
import trustme
from guides import ROOT
from spark_jobs import Bench

from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS, JobConfig
from cykafka.spark.jobs.observing.report import ProgressLine
from cykafka.spark.jobs.run.session import JobRun
from cykafka.testing import SchemaRegistry

ORDER = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "total", "type": "double"}]}  # fmt: skip
JSON = {"type": "object", "properties": {
    "id": {"type": "integer"}, "total": {"type": "number", "maximum": 1000}}}  # fmt: skip


def avro(number: int, order: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), order)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def configurations(bench: Bench, registry: SchemaRegistry, names: dict[str, str],
                   folder: Path) -> dict[str, JobConfig]:  # fmt: skip
    """The page's configurations with the names of this test."""
    page = (ROOT / "docs/spark-schemas.md").read_text(encoding="utf-8")
    found = {}
    for text in re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for name, other in names.items():
            text = text.replace(f'"{name}"', f'"{other}"')
        text = text.replace("localhost:9092", bench.servers).replace("/data", str(folder))
        text = text.replace("https://registry:8081", registry.url)
        text = text.replace("/etc/ssl/registry.pem", str(folder / "ca.pem"))
        file = folder / "job.toml"
        file.write_text(text)
        job = tomllib.loads(text)["job"]
        found[job] = load(JOBS[job], str(file), {}, {"REGISTRY_PASSWORD": "se:cret"})
    return found


def test_guide(bench: Bench, cluster: Any, unique: Any, tmp_path: Path) -> None:
    names = {name: unique(name) for name in ("orders", "large-orders", "orders.dlq",
                                             "orders-again")}  # fmt: skip
    for name in names.values():
        cluster.create_topic(name, 1, config={"retention.ms": -1})
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with SchemaRegistry(users={"archive": "se:cret"}, tls=context) as registry:
        number = registry.add(f"{names['orders']}-value", ORDER)
        large = registry.add(f"{names['large-orders']}-value", JSON, "JSON")
        again = registry.add(f"{names['orders-again']}-value", {**ORDER, "doc": "again"})
        orders = [{"id": item, "total": item * 70.0} for item in (1, 2, 20)]
        bench.send(names["orders"], [{"value": avro(number, order)} for order in orders])
        done = {
            job: bench.work(job, JobRun(bench.spark, config, ProgressLine(0, io.StringIO())))
            for job, config in configurations(bench, registry, names, tmp_path).items()
        }

    assert {job: summary.bad for job, summary in done.items()} == {
        "archive": 0, "mirror": 1, "replay": 0,
    }  # fmt: skip
    rows = bench.spark.read.parquet(str(tmp_path / "orders")).orderBy("offset").collect()
    assert [row.avro.asDict() for row in rows] == orders
    (sent,) = bench.read(names["large-orders"], 1)
    assert sent.value()[:5] == b"\0" + large.to_bytes(4, "big")
    assert json.loads(sent.value()[5:]) == orders[1]
    (letter,) = bench.read(names["orders.dlq"], 1)
    assert b"/total: 1400" in dict(letter.headers())["dlq_error"]
    replayed = [message.value() for message in bench.read(names["orders-again"], 3)]
    assert replayed == [avro(again, order) for order in orders]
