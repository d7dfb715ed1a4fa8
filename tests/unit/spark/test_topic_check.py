"""The check of the partitions of topics to write, without brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the group spark is not installed")

from cykafka.spark.jobs.config import topic_check
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.problems import ConfigError


class NoTopics:
    """A producer of a cluster without topics, which creates none."""

    def __init__(self, _config: Any) -> None:
        pass

    def __enter__(self) -> NoTopics:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def list_topics(self, *_: object) -> Any:
        return SimpleNamespace(topics={})


@pytest.mark.parametrize("dry_run", [True, False])
def test_many_missing_topics_are_awaited_together(
    monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(topic_check, "Producer", NoTopics)
    monkeypatch.setattr(topic_check, "_new_partitions", lambda *_: 0)
    monkeypatch.setattr(topic_check.time, "sleep", pauses.append)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "path": "/p", "dry_run": dry_run}
    config: Any = load(JOBS["replay"], None, given, {})

    with pytest.raises(ConfigError) as caught:
        topic_check.check_partitions(config, {f"t{number}": 1 for number in range(50)})

    assert str(caught.value).count("does not exist") == 50
    assert sum(pauses) < 20
