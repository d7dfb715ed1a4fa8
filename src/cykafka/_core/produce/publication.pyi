from collections.abc import Generator, Sequence
from typing import final

from cykafka._core.arrow.read import _ArrowData
from cykafka._core.client.call import Call
from cykafka._core.produce.delivery import Delivery
from cykafka._core.produce.producer import Producer, _Column, _ColumnOfHeaders, _Numbers
from cykafka._core.produce.transaction import Transactions

@final
class Publication:
    @property
    def delivery(self) -> Delivery: ...
    def step(self) -> bool | None: ...
    def end(self, raised: BaseException | None = None) -> None: ...

def publication(
    producer: Producer,
    topic: str | Sequence[str],
    values: _Column | None,
    *,
    keys: _Column | None = None,
    headers: _ColumnOfHeaders | None = None,
    timestamps: _Numbers | None = None,
    partitions: _Numbers | None = None,
) -> Publication: ...
def arrow_publication(
    producer: Producer,
    topic: str | None,
    data: _ArrowData,
    *,
    key: str | None = None,
    value: str | None = "value",
    headers: str | None = None,
    timestamp: str | None = None,
    partition: str | None = None,
) -> Publication: ...
def transactions_of(producer: Producer) -> Transactions: ...
def flush(producer: Producer, timeout: float | None) -> Generator[Call, None, int]: ...
def end_transaction(producer: Producer, timeout: float | None) -> Generator[Call, None, bool]: ...
def is_inherited(producer: Producer) -> bool: ...
def undelivered(producer: Producer) -> int: ...
def close_now(producer: Producer) -> bool: ...
