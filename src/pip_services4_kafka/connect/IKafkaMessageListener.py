"""What receives the messages of a subscription."""

from __future__ import annotations

from abc import ABC, abstractmethod

from cykafka import Message


class IKafkaMessageListener(ABC):
    """Receives the messages of a :class:`KafkaConnection`'s subscription."""

    @abstractmethod
    def on_message(self, topic: str, partition: int, message: Message) -> None:
        """Handle a message.

        Called in the subscription's thread, one message at a time. When it has returned, the
        message counts as read; an exception is logged, and the next message follows.

        Parameters
        ----------
        topic : str
        partition : int
        message : cykafka.Message
            Its value, key and headers may be None.
        """
