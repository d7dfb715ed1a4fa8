"""Serializers and deserializers of single values."""
