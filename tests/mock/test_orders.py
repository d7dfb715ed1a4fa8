"""No order of a consumer's calls aborts the process, crashes it, or never ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from orders import PROTOCOLS, Child, test_no_order_ends_the_process  # noqa: F401

pytestmark = pytest.mark.ours


@pytest.fixture(scope="module", params=PROTOCOLS)
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    child = Child(PROTOCOLS[request.param])
    yield child
    assert child.end() == ""
