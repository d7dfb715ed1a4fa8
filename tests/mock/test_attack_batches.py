"""Batches under attack: each of these crashed, hung, lost something, or might have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.ours

PREAMBLE = """
import gc, os, sys, threading, time
import cykafka
servers, topic = sys.argv[1:3]
config = {"bootstrap.servers": servers, "linger.ms": 0}
"""


@pytest.fixture
def run_attack(
    run_script: Callable[..., Any], cluster: Any, topic: str
) -> Callable[..., list[str]]:
    """Run a script in a process of its own, which has to end well; returns its lines."""

    def run(source: str, timeout: float = 60) -> list[str]:
        result = run_script(PREAMBLE + source, cluster.bootstrap_servers, topic, timeout=timeout)
        assert result.returncode == 0, result.stderr
        lines: list[str] = result.stdout.splitlines()
        return lines

    return run


def test_collector_that_closes_the_producer_in_publish(run_attack: Callable[..., Any]) -> None:
    # Where it runs depends on how many objects were made before: so at each place once.
    lines = run_attack("""
class Closing:
    def __init__(self, producer):
        self.producer, self.itself = producer, self
    def __del__(self):
        self.producer.close()

for threshold in range(1, 25):
    producer = cykafka.Producer(config)
    producer.publish(topic, [b"first"]).wait(20)
    gc.collect()
    gc.disable()
    gc.set_threshold(threshold)
    Closing(producer)
    gc.enable()
    try:
        delivery = producer.publish(topic, [b"value" * 40], keys=[b"key"])
    except RuntimeError as error:
        delivery = getattr(error, "delivery", None)
    gc.set_threshold(700)
    gc.collect()
    assert delivery is None or delivery.done
""")
    assert lines == []
