from collections.abc import Sequence

from typing_extensions import disjoint_base

from cykafka._admin_request import Request
from cykafka._model.acl import AclBinding, AclBindingFilter

@disjoint_base
class AclRequest(Request): ...

class CreateAcls(AclRequest):
    def __init__(self, acls: Sequence[AclBinding]) -> None: ...

class DescribeAcls(AclRequest):
    def __init__(self, acls: Sequence[AclBindingFilter]) -> None: ...

class DeleteAcls(AclRequest):
    def __init__(self, acls: Sequence[AclBindingFilter]) -> None: ...
