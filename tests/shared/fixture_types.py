"""The types of fixtures that many tests share. It imports no client, which tests may choose."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cykafka import Consumer, Message, Producer

MakeConsumer = Callable[..., "Consumer"]
MakeProducer = Callable[..., "Producer"]
Unique = Callable[[str], str]
Fill = Callable[..., None]
Read = Callable[..., "list[Message]"]
CodeOf = Callable[..., int]
WaitUntil = Callable[..., None]
RunScript = Callable[..., CompletedProcess[str]]
