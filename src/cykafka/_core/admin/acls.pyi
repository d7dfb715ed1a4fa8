from collections.abc import Sequence
from typing import Self

from typing_extensions import disjoint_base

from cykafka._core.admin.request import Request
from cykafka._core.model.acl import AclBinding, AclBindingFilter

@disjoint_base
class AclRequest(Request): ...

class CreateAcls(AclRequest):
    def __new__(cls, acls: Sequence[AclBinding]) -> Self: ...

class DescribeAcls(AclRequest):
    def __new__(cls, acls: Sequence[AclBindingFilter]) -> Self: ...

class DeleteAcls(AclRequest):
    def __new__(cls, acls: Sequence[AclBindingFilter]) -> Self: ...
