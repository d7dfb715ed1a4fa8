"""Requests to partition leaders while the system rarely runs the application's thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fixture_types import RunScript

pytestmark = pytest.mark.ours

# The metadata arrives while the thread that called list_offsets() is stalled in librdkafka. The
# round trip decides in which stall.
SCRIPT = """
    import os, pathlib
    from cykafka.admin import AdminClient, OffsetSpec
    from cykafka.testing import MockCluster

    pathlib.Path("/proc/self/comm").write_text("application")
    slow = pathlib.Path(os.environ["STALLS"])
    with MockCluster(1) as cluster:
        cluster.create_topic("t", partitions=16)
        for rtt_ms in range(30, 80, 5):
            cluster.set_rtt(rtt_ms)
            with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                slow.touch()
                futures = [
                    future
                    for partition in range(16)
                    for future in admin.list_offsets(
                        {kafka.TopicPartition("t", partition): OffsetSpec.latest()},
                        request_timeout=30).values()]
                slow.unlink()
                print([future.result(60).offset for future in futures])
"""


def test_metadata_arrives_while_a_request_looks_up_the_leaders(
    stall: Callable[[str], None], run_script: RunScript
) -> None:
    stall("application")

    done = run_script(SCRIPT)

    assert done.stderr == ""
    assert done.stdout == f"{[0] * 16}\n" * 10
