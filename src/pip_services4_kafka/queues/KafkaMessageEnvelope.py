"""The envelope that queues hand out."""

from __future__ import annotations

import json
from typing import Any

from pip_services4_messaging.queues import MessageEnvelope

from cykafka import Message
from cykafka.internal import EnvelopeCodec, EnvelopeError

from .._context import AnyContext, to_context

# As many bytes of a message as to_string() shows.
_SHOWN = 50


class KafkaMessageEnvelope(MessageEnvelope):
    """A MessageEnvelope that takes bytes and string contexts, and comes back as it went to JSON.

    Queues hand these out; they send any MessageEnvelope.

    Parameters
    ----------
    context : IContext or str, optional
        Its trace id is the envelope's.
    message_type : str, optional
    message : bytes, str or object, optional
        Bytes are the message as they are, a str as UTF-8, everything else as JSON.
    """

    def __init__(self, context: AnyContext, message_type: str | None, message: Any = None) -> None:
        is_bytes = isinstance(message, (bytes, bytearray, memoryview))
        super().__init__(to_context(context), message_type, None if is_bytes else message)
        if is_bytes:
            self.message = bytes(message)

    def to_string(self) -> str:
        """``[<trace id>,<type>,<the message's beginning>]``; ``---`` for what is missing.

        Returns
        -------
        str
        """
        shown = self.message[:_SHOWN].decode("utf-8", "replace") if self.message else None
        return f"[{self.trace_id or '---'},{self.message_type or '---'},{shown or '---'}]"

    def to_json(self) -> dict[str, Any]:
        """The envelope for JSON; the message is base64, the time has its offset.

        Returns
        -------
        dict
            ``message_id``, ``trace_id``, ``message_type``, ``sent_time`` (now, if there is none)
            and ``message``.
        """
        found: dict[str, Any] = json.loads(_JSON.to_record(self)["value"])
        return found

    @staticmethod
    def from_json(value: str | bytes | None) -> KafkaMessageEnvelope | None:
        """An envelope of JSON text, as :meth:`to_json` and MessageEnvelope's have it.

        Parameters
        ----------
        value : str or bytes, optional

        Returns
        -------
        KafkaMessageEnvelope or None
            ``sent_time`` is naive and local, whether the text has an offset or not. None: the text
            is no envelope.
        """
        if value is None:
            return None
        text = value.encode() if isinstance(value, str) else value
        try:
            envelope: KafkaMessageEnvelope = _JSON.to_envelope(Message(value=text))
        except EnvelopeError:
            return None
        envelope.set_reference(None)
        return envelope


_JSON = EnvelopeCodec(KafkaMessageEnvelope, "json")
