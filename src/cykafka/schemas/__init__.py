"""Values with schemas: Avro, Protobuf and JSON Schema, in the wire format of Schema Registry.

`SchemaRegistryClient` and `AsyncSchemaRegistryClient` request and register schemas.
`MessageBatch.decode` and `Producer.publish_arrow` use the client to convert whole batches. The
serializers and deserializers convert single records. ``pip install 'cykafka[schemas]'`` installs
the libraries for all formats.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from cykafka.schemas.model.document import UnfitError
from cykafka.schemas.model.error import (
    SchemaNotFoundError,
    SchemaRefusedError,
    SchemaRegistryError,
)
from cykafka.schemas.model.faults import needing_libraries
from cykafka.schemas.model.framing import (
    SchemaId,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
    prefix_schema_id_deserializer,
    prefix_schema_id_serializer,
)
from cykafka.schemas.model.metadata import (
    Metadata,
    MetadataProperties,
    MetadataTags,
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
)
from cykafka.schemas.model.schema import (
    Association,
    ConfigCompatibilityLevel,
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaVersion,
    ServerConfig,
)
from cykafka.schemas.model.subjects import (
    AssociatedNameStrategy,
    AsyncAssociatedNameStrategy,
    SubjectNameStrategyType,
    record_subject_name_strategy,
    reference_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from cykafka.schemas.registry.aio import AsyncSchemaRegistryClient
from cykafka.schemas.registry.client import SchemaRegistryClient

if TYPE_CHECKING:
    from cykafka.schemas.serdes.avro_serde import (
        AsyncAvroDeserializer,
        AsyncAvroDeserializerBuilder,
        AsyncAvroSerializer,
        AsyncAvroSerializerBuilder,
        AvroDeserializer,
        AvroDeserializerBuilder,
        AvroSerializer,
        AvroSerializerBuilder,
    )
    from cykafka.schemas.serdes.json_serde import (
        AsyncJSONDeserializer,
        AsyncJSONDeserializerBuilder,
        AsyncJSONSerializer,
        AsyncJSONSerializerBuilder,
        JSONDeserializer,
        JSONDeserializerBuilder,
        JSONSerializer,
        JSONSerializerBuilder,
    )
    from cykafka.schemas.serdes.protobuf_serde import (
        AsyncProtobufDeserializer,
        AsyncProtobufDeserializerBuilder,
        AsyncProtobufSerializer,
        AsyncProtobufSerializerBuilder,
        ProtobufDeserializer,
        ProtobufDeserializerBuilder,
        ProtobufSerializer,
        ProtobufSerializerBuilder,
    )

__all__ = [
    "AssociatedNameStrategy",
    "Association",
    "AsyncAssociatedNameStrategy",
    "AsyncAvroDeserializer",
    "AsyncAvroDeserializerBuilder",
    "AsyncAvroSerializer",
    "AsyncAvroSerializerBuilder",
    "AsyncJSONDeserializer",
    "AsyncJSONDeserializerBuilder",
    "AsyncJSONSerializer",
    "AsyncJSONSerializerBuilder",
    "AsyncProtobufDeserializer",
    "AsyncProtobufDeserializerBuilder",
    "AsyncProtobufSerializer",
    "AsyncProtobufSerializerBuilder",
    "AsyncSchemaRegistryClient",
    "AvroDeserializer",
    "AvroDeserializerBuilder",
    "AvroSerializer",
    "AvroSerializerBuilder",
    "ConfigCompatibilityLevel",
    "JSONDeserializer",
    "JSONDeserializerBuilder",
    "JSONSerializer",
    "JSONSerializerBuilder",
    "Metadata",
    "MetadataProperties",
    "MetadataTags",
    "ProtobufDeserializer",
    "ProtobufDeserializerBuilder",
    "ProtobufSerializer",
    "ProtobufSerializerBuilder",
    "RegisteredSchema",
    "Rule",
    "RuleKind",
    "RuleMode",
    "RuleParams",
    "RuleSet",
    "Schema",
    "SchemaId",
    "SchemaNotFoundError",
    "SchemaReference",
    "SchemaRefusedError",
    "SchemaRegistryClient",
    "SchemaRegistryError",
    "SchemaVersion",
    "ServerConfig",
    "SubjectNameStrategyType",
    "UnfitError",
    "dual_schema_id_deserializer",
    "header_schema_id_serializer",
    "prefix_schema_id_deserializer",
    "prefix_schema_id_serializer",
    "record_subject_name_strategy",
    "reference_subject_name_strategy",
    "topic_record_subject_name_strategy",
    "topic_subject_name_strategy",
]

# Each format needs its own library, which may be missing.
_FORMATS = {
    "Avro": "serdes.avro_serde",
    "JSON": "serdes.json_serde",
    "Protobuf": "serdes.protobuf_serde",
}
_MODULE_OF = {
    name: module
    for name in __all__
    for kind, module in _FORMATS.items()
    if name.removeprefix("Async").startswith(kind)
}


# With __getattr__(), type checkers would accept any name of this module.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with needing_libraries():
            return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
