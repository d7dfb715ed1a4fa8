from typing import final

from typing_extensions import disjoint_base

from cykafka._core.client.role import Role

@disjoint_base
class Topic: ...

@final
class Batch: ...

@disjoint_base
class Receiver: ...

@final
class Publisher(Role): ...
