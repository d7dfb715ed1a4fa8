"""The connection of the command ``cykafka`` to slow brokers."""

from __future__ import annotations

import pytest

from cykafka.cli.main import main
from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours


def test_brokers_that_answer_late_are_reached(
    mock_cluster: MockCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    mock_cluster.create_topic("orders", 1)
    mock_cluster.set_rtt(700)  # longer than the first request may take

    assert main(["topics", "list", "--json", "-b", mock_cluster.bootstrap_servers]) == 0
    assert '"topic":"orders"' in capsys.readouterr().out
