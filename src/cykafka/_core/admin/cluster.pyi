from typing import Self

from typing_extensions import disjoint_base

from cykafka._core.admin.request import Request
from cykafka._core.model.scram import UserScramCredentialAlteration

class DescribeCluster(Request):
    def __new__(cls) -> Self: ...

@disjoint_base
class DescribeUserScramCredentials(Request):
    def __new__(cls, users: list[str] | None) -> Self: ...

class AlterUserScramCredentials(Request):
    def __new__(cls, alterations: list[UserScramCredentialAlteration]) -> Self: ...
