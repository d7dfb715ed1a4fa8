"""Batches of every form and size round-trip identical and in order through real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from repeated import examples
from round_trips import FORMS, Wire


@pytest.fixture(scope="module")
def wire(kafka_cluster: Any) -> Iterator[Wire]:
    # Records with old timestamps must stay.
    kafka_cluster.create_topic("round-trips", partitions=1, config={"retention.ms": -1})
    wire = Wire(kafka_cluster, "round-trips")
    yield wire
    wire.close()


@pytest.mark.parametrize("form", FORMS)
@settings(
    max_examples=examples(5),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(count=st.integers(0, 3_000), seed=st.integers(0, 2**32))
@example(count=0, seed=0)
@example(count=1, seed=0)
def test_batches_round_trip(wire: Wire, form: str, count: int, seed: int) -> None:
    wire.check(form, count, seed)


@pytest.mark.parametrize("form", ["lists", "named headers", "arrow"])
def test_a_hundred_thousand_records_round_trip(wire: Wire, form: str) -> None:
    wire.check(form, 100_000, seed=1)
