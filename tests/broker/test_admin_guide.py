"""The Python of the guide to administration does what the guide says."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_types import MakeConsumer, Unique, WaitUntil
from guides import blocks
from machine import WAIT_S

from cykafka import TopicPartition

pytestmark = pytest.mark.ours


def test_admin_guide_examples_run(
    cluster: Any,
    unique: Unique,
    make_consumer: MakeConsumer,
    wait_until: WaitUntil,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, group = unique("shipments"), unique("billing")
    names: dict[str, Any] = {}
    source = [
        block.replace("localhost:9092", cluster.bootstrap_servers)
        .replace('"shipments"', repr(topic))
        .replace('"billing"', repr(group))
        for block in blocks("docs/administration.md")
    ]
    assert len(source) == 4
    exec(compile(source[0], "docs/administration.md", "exec"), names)
    consumer = make_consumer({"group.id": group})
    wait_until(lambda: topic in consumer.list_topics(timeout=WAIT_S).topics)
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)

    for block in source[1:]:
        exec(compile(block, "docs/administration.md", "exec"), names)

    assert capsys.readouterr().out.splitlines()[-1] == f"{topic} 0 7"
    # The broker may have answered the guide's code before it knew of the changes.
    with names["AdminClient"]({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        resource, rule = names["resource"], names["rule"]

        def retention() -> str:
            entries = admin.describe_configs([resource])[resource].result(WAIT_S)
            return str(entries["retention.ms"].value)

        wait_until(lambda: retention() == "259200000")
        wait_until(lambda: admin.describe_acls(names["all_rules"]).result(WAIT_S) == [rule])
