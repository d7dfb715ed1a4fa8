"""Fixtures for jobs: a broker, a session, topics that keep old records, folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench


@pytest.fixture
def bench(spark: Any, cluster: Any, java_options: str, stop_queries: None) -> Bench:
    return Bench(spark, cluster.bootstrap_servers, java_options)


@pytest.fixture
def shared_session(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process use the folder's session instead of their own."""

    @contextmanager
    def session(*_: Any) -> Iterator[Any]:
        yield bench.spark

    monkeypatch.setattr("cykafka.spark.jobs.run.session.session", session)


@pytest.fixture
def topic(cluster: Any, unique: Any) -> str:
    """A topic of four partitions that keeps old records."""
    name = unique("topic")
    cluster.create_topic(name, 4, config={"retention.ms": -1})
    return str(name)


@pytest.fixture
def other_topic(cluster: Any, unique: Any) -> str:
    """Another topic of four partitions that keeps old records."""
    name = unique("other")
    cluster.create_topic(name, 4, config={"retention.ms": -1})
    return str(name)


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """The folders of an archive."""
    return {"path": str(tmp_path / "archive"), "checkpoint": str(tmp_path / "checkpoint")}


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A folder for the checkpoint of a query."""
    return str(tmp_path / "checkpoint")


@pytest.fixture
def dead(cluster: Any, unique: Any) -> str:
    """A dead letter topic of one partition."""
    name = unique("dead")
    cluster.create_topic(name, 1, config={"retention.ms": -1})
    return str(name)
