from collections.abc import Mapping, Sequence
from typing import TypeAlias

from typing_extensions import Buffer, disjoint_base

from cykafka._delivery import Delivery
from cykafka._transaction import Transactional

_Data: TypeAlias = bytes | str | Buffer
_Column: TypeAlias = Sequence[_Data | None] | Buffer
_RecordHeaders: TypeAlias = Mapping[str, _Data | None] | Sequence[tuple[str, _Data | None]]
_Headers: TypeAlias = Sequence[_RecordHeaders | None] | Mapping[str, bytes | str | _Column | None]
_Numbers: TypeAlias = int | Sequence[int | None] | Buffer

@disjoint_base
class Publisher(Transactional):
    def publish(
        self,
        topic: str | Sequence[str],
        values: _Column | None,
        *,
        keys: _Column | None = None,
        headers: _Headers | None = None,
        timestamps: _Numbers | None = None,
        partitions: _Numbers | None = None,
        timeout: float | None = None,
    ) -> Delivery: ...
