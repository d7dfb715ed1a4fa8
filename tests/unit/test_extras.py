"""Modules that need an extra say which one, if it is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("cykafka.stats", "msgspec", "metrics"),
        ("cykafka.stats.prometheus", "prometheus_client", "metrics"),
        ("cykafka.otel", "opentelemetry", "otel"),
        ("cykafka.schemas.serdes.avro_serde", "fastavro", "schemas"),
        ("cykafka.schemas.serdes.json_serde", "jsonschema_rs", "schemas"),
        ("cykafka.schemas.serdes.protobuf_serde", "google.protobuf", "schemas"),
    ],
)
def test_import_without_the_extra_names_it(module: str, package: str, extra: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import {module}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert package in last
    assert last.endswith(f"pip install 'cykafka[{extra}]'")
