"""Values with schemas: Avro, Protobuf and JSON Schema, in the wire format of Schema Registry."""
