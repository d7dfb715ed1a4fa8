from collections.abc import Sequence
from typing import Self

from typing_extensions import disjoint_base

from cykafka._core.admin.request import Request
from cykafka._core.model.acl import AclBinding, AclBindingFilter
from cykafka._core.model.config import ConfigResource
from cykafka._core.model.scram import UserScramCredentialAlteration

class DescribeCluster(Request):
    def __new__(cls) -> Self: ...

class ConfigRequest(Request): ...

class DescribeConfigs(ConfigRequest):
    def __new__(cls, resources: list[ConfigResource]) -> Self: ...

class AlterConfigs(ConfigRequest):
    def __new__(cls, resources: list[ConfigResource]) -> Self: ...

class IncrementalAlterConfigs(ConfigRequest):
    def __new__(cls, resources: list[ConfigResource]) -> Self: ...

@disjoint_base
class DescribeUserScramCredentials(Request):
    def __new__(cls, users: list[str] | None) -> Self: ...

class AlterUserScramCredentials(Request):
    def __new__(cls, alterations: list[UserScramCredentialAlteration]) -> Self: ...

@disjoint_base
class AclRequest(Request): ...

class CreateAcls(AclRequest):
    def __new__(cls, acls: Sequence[AclBinding]) -> Self: ...

class DescribeAcls(AclRequest):
    def __new__(cls, acls: Sequence[AclBindingFilter]) -> Self: ...

class DeleteAcls(AclRequest):
    def __new__(cls, acls: Sequence[AclBindingFilter]) -> Self: ...
