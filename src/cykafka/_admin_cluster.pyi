from typing_extensions import disjoint_base

from cykafka._admin_request import Request
from cykafka._model.scram import UserScramCredentialAlteration

class DescribeCluster(Request):
    def __init__(self) -> None: ...

@disjoint_base
class DescribeUserScramCredentials(Request):
    def __init__(self, users: list[str] | None) -> None: ...

class AlterUserScramCredentials(Request):
    def __init__(self, alterations: list[UserScramCredentialAlteration]) -> None: ...
