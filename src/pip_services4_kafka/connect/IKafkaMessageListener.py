"""The interface that a subscription's listener implements."""

from __future__ import annotations

from abc import ABC, abstractmethod

from cykafka import Message


class IKafkaMessageListener(ABC):
    """Receives the messages of a :class:`KafkaConnection`'s subscription."""

    @abstractmethod
    def on_message(self, topic: str, partition: int, message: Message) -> None:
        """Handle a message.

        The subscription's thread calls this method, one message at a time. A message is
        finished when the call returns. If the call raises, the connection logs the exception and
        continues with the next message.

        Parameters
        ----------
        topic : str
        partition : int
        message : cykafka.Message
            The value, the key and the headers may be None.
        """
