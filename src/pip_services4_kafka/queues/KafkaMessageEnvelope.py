"""The envelope around a received message."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

from pip_services4_messaging.queues import MessageEnvelope

from .._context import AnyContext, to_context

# How many bytes of a message to_string() shows.
_SHOWN = 50


class KafkaMessageEnvelope(MessageEnvelope):
    """A MessageEnvelope that accepts bytes and str contexts and survives a JSON round trip.

    Queues return these envelopes. They send any MessageEnvelope.

    Parameters
    ----------
    context : IContext or str, optional
        The envelope gets the trace id of this context.
    message_type : str, optional
    message : bytes, str or object, optional
        Bytes stay unchanged, a str becomes UTF-8, any other object becomes JSON.
    """

    def __init__(self, context: AnyContext, message_type: str | None, message: Any = None) -> None:
        is_bytes = isinstance(message, (bytes, bytearray, memoryview))
        super().__init__(to_context(context), message_type, None if is_bytes else message)
        if is_bytes:
            self.message = bytes(message)

    def to_string(self) -> str:
        """``[<trace id>,<type>,<first 50 bytes of the message>]``; ``---`` for a missing part.

        Returns
        -------
        str
        """
        shown = self.message[:_SHOWN].decode("utf-8", "replace") if self.message else None
        return f"[{self.trace_id or '---'},{self.message_type or '---'},{shown or '---'}]"

    def to_json(self) -> dict[str, Any]:
        """Convert the envelope to a dict for JSON.

        Returns
        -------
        dict
            ``message_id``, ``trace_id``, ``message_type``, ``sent_time`` (with its UTC offset; now
            if the envelope has none) and ``message`` (base64).
        """
        sent = self.sent_time or datetime.datetime.now()
        body = self.message
        return {
            "message_id": self.message_id,
            "trace_id": self.trace_id,
            "message_type": self.message_type,
            "sent_time": sent.astimezone().isoformat(),
            "message": base64.b64encode(body).decode() if body is not None else None,
        }

    @staticmethod
    def from_json(value: str | bytes | None) -> KafkaMessageEnvelope | None:
        """Read an envelope from JSON text in the format of :meth:`to_json` or MessageEnvelope.

        Parameters
        ----------
        value : str or bytes, optional

        Returns
        -------
        KafkaMessageEnvelope or None
            ``sent_time`` is naive and local, with or without an offset in the text. None if the
            text is not an envelope.
        """
        try:
            found = json.loads(value or b"")
            envelope = KafkaMessageEnvelope(found["trace_id"], found["message_type"])
            envelope.message_id = found["message_id"]
            if found["message"] is not None:
                envelope.message = base64.b64decode(found["message"])
            if found["sent_time"] is not None:
                time = datetime.datetime.fromisoformat(found["sent_time"])
                envelope.sent_time = (
                    time.astimezone().replace(tzinfo=None) if time.tzinfo else time
                )
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
            return None
        return envelope
