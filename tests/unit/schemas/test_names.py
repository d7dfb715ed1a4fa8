"""The public names of cykafka.schemas."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cykafka import schemas
from cykafka.schemas.model import error, metadata, schema
from cykafka.schemas.registry import aio, client
from cykafka.schemas.serdes import avro_serde, json_serde, protobuf_serde

MODULES = (aio, avro_serde, client, error, json_serde, metadata, protobuf_serde, schema)
LIBRARIES = ("fastavro", "google.protobuf", "jsonschema_rs", "numpy", "pyarrow", "urllib3")


def test_all_names_exist() -> None:
    assert [name for name in schemas.__all__ if not hasattr(schemas, name)] == []
    assert set(schemas.__all__) <= set(dir(schemas))


@pytest.mark.parametrize("module", MODULES)
def test_names_of_a_module_are_public(module: object) -> None:
    names = set(module.__all__) - {"KnownSchemas", "NotKnownError", "json_of", "plain"}  # type: ignore[attr-defined]
    assert names <= set(schemas.__all__)
    assert all(getattr(schemas, name) is getattr(module, name) for name in names)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Serializer'"):
        getattr(schemas, "Serializer")  # noqa: B009


def test_import_needs_no_library_of_a_format() -> None:
    code = f"import cykafka.schemas, sys; print([n for n in {LIBRARIES} if n in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]"
