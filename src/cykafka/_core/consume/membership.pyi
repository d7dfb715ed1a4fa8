from typing import final

from cykafka._core.client.handle import Role

@final
class Membership(Role): ...
