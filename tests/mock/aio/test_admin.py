"""AsyncAdminClient: calls that would block are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S

from cykafka.aio import AsyncAdminClient

pytestmark = pytest.mark.ours


def test_admin_client_blocks_no_loop(run: Callable[..., Any], settings: dict[str, Any]) -> None:
    async def main() -> None:
        admin = AsyncAdminClient(settings)
        assert await admin.cluster_id(WAIT_S)
        for blocking in (admin.poll, admin.list_groups):
            with pytest.raises(TypeError, match="would block"):
                blocking()
        with pytest.raises(TypeError, match="async with"), admin:
            pass
        assert await admin.close() is True

    run(main())
