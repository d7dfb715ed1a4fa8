"""Decodes and encodes columns on the workers.

This module does not import the configuration; `outcome` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING

import pyarrow as pa

from cykafka.schemas.model.error import (
    SchemaNotFoundError,
    SchemaRefusedError,
    SchemaRegistryError,
)

if TYPE_CHECKING:
    from cykafka.schemas.codec import Decoder

__all__ = ["TaskDecoder", "name_option", "naming_option"]


@contextmanager
def naming_option() -> Iterator[None]:
    """Name the key in an error of the registry's client."""
    try:
        yield
    except (SchemaNotFoundError, SchemaRefusedError):
        raise
    except SchemaRegistryError as error:
        if error.option is None:
            raise
        codes = error.http_status_code, error.error_code
        text = f'key "registry.{error.option}": {error}'
        raise SchemaRegistryError(*codes, error.error_message, text=text, option=None) from None


def name_option(function: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """Return the function with `naming_option` around each call. It can be pickled."""

    @wraps(function)
    def call(*columns: pa.Array) -> pa.Array:
        with naming_option():
            return function(*columns)

    return call


@dataclass(frozen=True)
class TaskDecoder:
    """Adds the same columns as `decode` in `decoding`, without Spark.

    Parameters
    ----------
    decoder : Decoder
    column : str
        The name of the column with the decoded values.
    """

    decoder: Decoder
    column: str

    @property
    def has_local_times(self) -> bool:
        """Whether values may contain timestamps without a time zone."""
        return str(pa.timestamp("us")) in str(self.decoder.reader.kind)

    def add_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the columns `error` and `column` to a batch.

        Raises
        ------
        SchemaRegistryError
            The registry does not respond.
        """
        with naming_option():
            data, errors = self.decoder.decode(batch["value"]).flatten()
        return batch.append_column("error", errors).append_column(self.column, data)
