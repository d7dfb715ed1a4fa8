"""`cykafka produce` while its broker is away."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from machine import WAIT_S

from cykafka import Consumer, TopicPartition
from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours


def test_second_signal_reports_records_that_wait_for_room() -> None:
    with MockCluster() as cluster:
        cluster.create_topic("topic", 1)
        command = ["produce", "topic", "-b", cluster.bootstrap_servers]
        with subprocess.Popen(
            [sys.executable, "-m", "cykafka", *command, "-X", "queue.buffering.max.messages=10"],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
        ) as writer:  # fmt: skip
            assert writer.stdin is not None
            assert writer.stderr is not None
            writer.stdin.write("first\n")
            with Consumer(
                {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
            ) as consumer:
                consumer.assign([TopicPartition("topic", 0, 0)])
                assert consumer.poll(WAIT_S).value() == b"first"
            cluster.broker_down()
            os.write(writer.stdin.fileno(), b"x\n" * 100)
            assert "cannot reach any broker" in writer.stderr.readline()
            writer.send_signal(signal.SIGINT)
            assert "interrupted; waiting for 100 records" in writer.stderr.readline()
            writer.send_signal(signal.SIGINT)
            _, err = writer.communicate(timeout=WAIT_S)

        assert writer.returncode == 130
        assert "standard input, line 2: Local: " in err
        assert "and 95 more records failed" in err
        assert re.search("topic: 1 record, .*; 100 failed", err)
