"""The requests that mock brokers support, and checks of MockCluster's arguments."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.near_miss import did_you_mean
from cykafka._core.common.topic_names import is_topic_name

# The requests that mock brokers support: Kafka's name -> (key, lowest version, highest version).
# librdkafka does not check versions against its implementation, so these are the limits of 2.15.1.
APIS = {
    "Produce": (0, 0, 10),
    "Fetch": (1, 0, 16),
    "ListOffsets": (2, 0, 7),
    "Metadata": (3, 0, 12),
    "OffsetCommit": (8, 0, 9),
    "OffsetFetch": (9, 0, 6),
    "FindCoordinator": (10, 0, 3),
    "JoinGroup": (11, 0, 6),
    "Heartbeat": (12, 0, 5),
    "LeaveGroup": (13, 0, 4),
    "SyncGroup": (14, 0, 4),
    "ApiVersions": (18, 0, 2),
    "InitProducerId": (22, 0, 4),
    "OffsetForLeaderEpoch": (23, 2, 2),
    "AddPartitionsToTxn": (24, 0, 1),
    "AddOffsetsToTxn": (25, 0, 1),
    "EndTxn": (26, 0, 1),
    "TxnOffsetCommit": (28, 0, 3),
    "ConsumerGroupHeartbeat": (68, 1, 1),
    "GetTelemetrySubscriptions": (71, 0, 0),
    "PushTelemetry": (72, 0, 0),
    "ShareGroupHeartbeat": (76, 1, 1),
    "ShareFetch": (78, 1, 1),
    "ShareAcknowledge": (79, 1, 1),
}
API_NAMES = {key: name for name, (key, _, _) in APIS.items()}


def check_int(name: str, value: SupportsIndex, lowest: int, highest: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    number = operator.index(value)
    if not lowest <= number <= highest:
        raise ValueError(f"{name} must be from {lowest} to {highest}, not {number}")
    return number


def check_topic(name: str, value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not is_topic_name(value):
        raise ValueError(f"{name} must be 1 to 249 of A-Z a-z 0-9 . _ -, not {value!r}")
    return value.encode()


def check_api(api: str | int) -> int:
    if isinstance(api, str):
        if api in APIS:
            return APIS[api][0]
        hint = did_you_mean(api, APIS, cutoff=0.6) or f"; it supports {', '.join(APIS)}"
        raise ValueError(f"the mock cluster does not support the api {api!r}{hint}")
    if isinstance(api, bool) or not hasattr(api, "__index__"):
        raise TypeError(f"api must be a str or an int, not {type(api).__name__}")
    if api not in API_NAMES:
        raise ValueError(f"the mock cluster does not support the api key {api}")
    return operator.index(api)


def check_code(name: str, error: KafkaError | int) -> int:
    code: Any = error.code() if isinstance(error, KafkaError) else error
    if isinstance(code, bool) or not hasattr(code, "__index__"):
        raise TypeError(f"{name} must be KafkaErrors or their codes, not {type(code).__name__}")
    return check_int(name, code, -(2**15), 2**15 - 1)


def check_err(code: int, what: str) -> None:
    if code:
        raise KafkaException(KafkaError(code, f"{what}: {KafkaError(code).str()}"))
