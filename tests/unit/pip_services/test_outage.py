"""An outage is two log lines, whatever the clients report."""

from __future__ import annotations

import queue

import pytest

from cykafka import KafkaError, KafkaException
from pip_services4_kafka._log import Log
from pip_services4_kafka.connect import _outage
from pip_services4_kafka.connect._outage import Outage

pytestmark = pytest.mark.ours


def refused(broker: str) -> KafkaError:
    return KafkaError(KafkaError._TRANSPORT, f"{broker}:9092/1: Connection refused")


def test_errors_that_clients_report_late_belong_to_the_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(
        Log, "write", lambda self, level, text, error=None, *_: lines.put(f"{text}: {error}")
    )
    monkeypatch.setattr(_outage, "_FIRST_S", 0.01)
    answers = [KafkaException(refused("one")), None, None, None]

    def ask(timeout: float) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    outage = Outage(Log())
    outage.watch("one,two", ask)
    outage.report(refused("one"), "a consumer")
    assert lines.get(timeout=10).startswith("No Kafka broker responds")
    assert lines.get(timeout=10).startswith("Kafka responds again")
    outage.report(refused("one"), "another consumer")
    monkeypatch.setattr(_outage, "_LATE_S", 0)
    outage.report(refused("two"), "a third one")  # it is news
    assert "two:9092" in lines.get(timeout=10)
    assert lines.empty()
