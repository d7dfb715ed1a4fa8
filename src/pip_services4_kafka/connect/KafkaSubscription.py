"""A listener's subscription on a KafkaConnection."""

from __future__ import annotations

from typing import Any

from cykafka import Consumer

from .IKafkaMessageListener import IKafkaMessageListener


class KafkaSubscription:
    """A listener's subscription to a topic.

    Attributes
    ----------
    topic : str
    group_id : str or None
        The group that the subscriber passed. None means the group ``default``.
    options : dict
        The consumer's properties. Printing them hides secrets.
    handler : cykafka.Consumer
        The current consumer. The session replaces it after a fatal error.
    listener : IKafkaMessageListener
    """

    def __init__(
        self,
        topic: str | None = None,
        group_id: str | None = None,
        options: Any = None,
        handler: Consumer | None = None,
        listener: IKafkaMessageListener | None = None,
    ) -> None:
        self.topic = topic
        self.group_id = group_id
        self.options = options
        self.handler = handler
        self.listener = listener
        self._session: Any = None  # set by the connection

    def __repr__(self) -> str:
        return f"<KafkaSubscription topic={self.topic!r} group_id={self.group_id!r}>"
