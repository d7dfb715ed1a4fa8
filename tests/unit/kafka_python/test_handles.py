"""The clients of cykafka that a kafka-python client uses."""

from __future__ import annotations

from typing import Any

import pytest
from live import live_before

from cykafka import Producer
from cykafka.admin import AdminClient
from cykafka.compat.kafka_python import _handles
from cykafka.testing import live_handles

pytestmark = pytest.mark.ours


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (Producer, lambda handles: handles.producer(0, 1000, 0, None)),
        (AdminClient, lambda handles: handles.admin._opened()),
    ],
    ids=["producer", "admin"],
)
def test_client_that_a_signal_handler_has_made_meanwhile_is_kept(
    monkeypatch: pytest.MonkeyPatch, kind: type, make: Any
) -> None:
    before = live_before()["handles"]
    handles = _handles.Handles([("127.0.0.1", 1)], b"client", 5.0)
    meanwhile: list[object] = []

    class Interrupted(kind):
        def __init__(self, config: dict[str, Any]) -> None:
            if not meanwhile:
                meanwhile.append(None)
                meanwhile[0] = make(handles)
            super().__init__(config | {"log_level": 0})

    monkeypatch.setattr(_handles, kind.__name__, Interrupted)

    assert make(handles) is meanwhile[0]
    assert live_handles()["handles"] == before + 1
    handles.close()
    assert live_handles()["handles"] == before
