from typing_extensions import disjoint_base

from cykafka._client import Client
from cykafka._partition import TopicPartition

@disjoint_base
class Transactional(Client):
    def init_transactions(self, timeout: float | None = None) -> None: ...
    def begin_transaction(self) -> None: ...
    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition] | tuple[TopicPartition, ...],
        group_metadata: bytes | str,
        timeout: float | None = None,
    ) -> None: ...
    def commit_transaction(self, timeout: float | None = None) -> None: ...
    def abort_transaction(self, timeout: float | None = None) -> None: ...
