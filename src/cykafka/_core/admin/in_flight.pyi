from typing import final

from cykafka._core.client.role import Role

@final
class InFlightRequests(Role): ...
