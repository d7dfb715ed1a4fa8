"""`tests/shared/run_order.py`: xdist knows the groups."""

from __future__ import annotations

import pytest


@pytest.mark.alone
def test_xdist_gets_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    if not hasattr(request.config, "workerinput"):
        pytest.skip("needs workers of pytest-xdist, as in `make test`")
    assert request.node.nodeid.endswith("@alone")
