"""`tests/shared/run_order.py`: xdist knows the groups."""

from __future__ import annotations

import pytest


@pytest.mark.alone
def test_xdist_gets_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    if not hasattr(request.config, "workerinput"):
        pytest.skip("groups are those of pytest-xdist's workers, as `make test` has them")
    assert request.node.nodeid.endswith("@alone")
