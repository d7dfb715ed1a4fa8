from typing import final

from cykafka._core.client.leaving import Member

@final
class ShareMembership(Member): ...
