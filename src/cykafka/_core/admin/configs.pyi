from typing import Self

from cykafka._core.admin.request import Request
from cykafka._core.model.config import ConfigResource

class ConfigRequest(Request): ...

class DescribeConfigs(ConfigRequest):
    def __new__(cls, resources: list[ConfigResource]) -> Self: ...

class AlterConfigs(ConfigRequest):
    def __new__(cls, resources: list[ConfigResource]) -> Self: ...

class IncrementalAlterConfigs(ConfigRequest):
    def __new__(cls, resources: list[ConfigResource]) -> Self: ...
