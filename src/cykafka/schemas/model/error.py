"""The errors of Schema Registry clients."""

from __future__ import annotations

from cykafka.schemas.model.document import UnfitError

__all__ = ["SchemaNotFoundError", "SchemaRefusedError", "SchemaRegistryError"]


class SchemaRegistryError(Exception):
    """The registry refuses a request or fails, or does not respond.

    Parameters
    ----------
    http_status_code : int
        The HTTP status; -1 without a response.
    error_code : int
        The registry's code, such as 40403; -1 if the registry sent none.
    error_message : str
        The registry's message, or the reason why it did not respond.
    text : str, optional
        The text of the whole error: the request, the cause and what to do.
    option : str or None, default "url"
        The option of the client that the error is about.
    """

    UNKNOWN = -1

    def __init__(
        self,
        http_status_code: int,
        error_code: int,
        error_message: str,
        *,
        text: str | None = None,
        option: str | None = "url",
    ) -> None:
        super().__init__(http_status_code, error_code, error_message)
        self.http_status_code = http_status_code
        self.error_code = error_code
        self.error_message = error_message
        self.option = option
        self._text = text

    def __str__(self) -> str:
        codes = f"HTTP status code {self.http_status_code}, SR code {self.error_code}"
        return self._text or f"{self.error_message} ({codes})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class SchemaNotFoundError(SchemaRegistryError):
    """The registry does not contain the subject, version, id or schema."""


class SchemaRefusedError(SchemaRegistryError, UnfitError):
    """The registry refuses a schema: it is invalid, or incompatible with the subject's schemas."""
