"""Topics that a connection creates."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pip_services4_kafka.connect import _topics

pytestmark = pytest.mark.ours


def test_creation_waits_until_the_broker_knows_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    created: Future[None] = Future()
    created.set_result(None)
    admin = cast(Any, SimpleNamespace(create_topics=lambda *_, **__: {"t": created}))
    known = iter([False, False, True])
    monkeypatch.setattr(_topics, "has_topic", lambda *_: next(known))

    _topics.create_topic(admin, "t", 1, 1, 5.0)

    assert list(known) == []
