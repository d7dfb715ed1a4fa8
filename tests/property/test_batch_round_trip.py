"""Batches of every form and size round-trip identical and in order on the mock cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from repeated import examples
from round_trips import FORMS, Wire

from cykafka.testing import MockCluster

TOPIC = "round-trips"


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with MockCluster() as cluster:
        cluster.create_topic(TOPIC, 1)
        wire = Wire(cluster, TOPIC)
        yield wire
        wire.close()


@pytest.mark.parametrize("form", FORMS)
@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(count=st.integers(0, 3_000), seed=st.integers(0, 2**32))
@example(count=0, seed=0)
@example(count=1, seed=0)
def test_batches_round_trip(wire: Wire, form: str, count: int, seed: int) -> None:
    wire.check(form, count, seed)


@pytest.mark.parametrize("form", FORMS)
def test_a_hundred_thousand_records_round_trip(wire: Wire, form: str) -> None:
    # The mock keeps only 5 MB of a partition, and the reader may lag.
    wire.check(form, 100_000, seed=1, small=True)
