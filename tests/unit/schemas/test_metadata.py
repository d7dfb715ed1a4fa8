"""Classes for a schema's metadata and rules."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from cykafka import schemas
from cykafka.schemas import (
    AvroSerializer,
    Metadata,
    MetadataProperties,
    MetadataTags,
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaRegistryClient,
    ServerConfig,
)
from cykafka.serialization import MessageField, SerializationContext, SerializationError
from cykafka.testing import SchemaRegistry

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
METADATA = {
    "tags": {"Order.id": ["PII"]},
    "properties": {"owner": "ada"},
    "sensitive": ["owner"],
}
RULE = {
    "name": "hide",
    "doc": "hides",
    "kind": "TRANSFORM",
    "mode": "WRITEREAD",
    "type": "ENCRYPT",
    "tags": ["PII"],
    "params": {"encrypt.kek.name": "kek"},
    "expr": "true",
    "onSuccess": "NONE",
    "onFailure": "ERROR",
    "disabled": False,
}
RULES = {"migrationRules": [], "domainRules": [RULE], "enableAt": "CLIENT"}


def metadata() -> Metadata:
    return Metadata(
        MetadataTags({"Order.id": ["PII"]}), MetadataProperties({"owner": "ada"}), ["owner"]
    )


def rule(name: str = "hide", *, disabled: bool = False) -> Rule:
    params = RuleParams({"encrypt.kek.name": "kek"})
    return Rule(name, "hides", RuleKind.TRANSFORM, RuleMode.WRITEREAD, "ENCRYPT", ["PII"], params,
                "true", "NONE", "ERROR", disabled)  # fmt: skip


@pytest.fixture
def client() -> Iterator[SchemaRegistryClient]:
    with SchemaRegistry() as made, SchemaRegistryClient({"url": made.url}) as opened:
        yield opened


def test_objects_are_the_registrys_json() -> None:
    made = Schema(ORDER, "AVRO", [], metadata(), RuleSet([], [rule()], enable_at="CLIENT"))

    found = made.to_dict()
    assert found["metadata"] == METADATA
    assert found["ruleSet"] == RULES
    assert json.loads(json.dumps(found)) == found
    assert {type(value) for value in found["ruleSet"]["domainRules"][0].values()} == {
        str, list, dict, bool
    }  # fmt: skip
    assert Schema.from_dict(found) == made == Schema(ORDER, "AVRO", [], METADATA, RULES)
    assert Schema.from_dict(json.loads(json.dumps(found))).to_dict() == found
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


def test_attributes_of_json() -> None:
    found = Schema.from_dict({"schema": ORDER, "metadata": METADATA, "ruleSet": RULES})
    assert isinstance(found.metadata, Metadata)
    assert isinstance(found.rule_set, RuleSet)

    assert found.metadata.properties is not None
    assert found.metadata.properties.properties == {"owner": "ada"}
    assert found.metadata.tags is not None
    assert found.metadata.tags.tags == {"Order.id": ["PII"]}
    assert found.metadata.sensitive == ["owner"]
    assert (found.rule_set.migration_rules, found.rule_set.encoding_rules) == ([], [])
    assert found.rule_set.enable_at == "CLIENT"
    (hide,) = found.rule_set.domain_rules
    assert (hide.name, hide.doc, hide.type, hide.tags) == ("hide", "hides", "ENCRYPT", ["PII"])
    assert hide.kind is RuleKind.TRANSFORM
    assert hide.mode is RuleMode.WRITEREAD
    assert hide.params is not None
    assert hide.params.params == {"encrypt.kek.name": "kek"}
    assert (hide.expr, hide.on_success, hide.on_failure) == ("true", "NONE", "ERROR")
    assert hide.disabled is False

    hide.disabled = True
    hide.doc = None
    found.rule_set.domain_rules.append(Rule("more"))
    domain = found.to_dict()["ruleSet"]["domainRules"]
    assert domain == [
        {name: value for name, value in {**RULE, "disabled": True}.items() if name != "doc"},
        {"name": "more"},
    ]
    assert eval(repr(found.rule_set), vars(schemas)) == found.rule_set


def test_entries_that_are_not_known_stay() -> None:
    given = {
        "schema": ORDER,
        "schemaType": "AVRO",
        "references": [],
        "metadata": {"properties": None, "later": [1]},
        "ruleSet": {"domainRules": [{"mode": "LATER", "kind": None, "more": {}}], "x": {"y": 1}},
    }
    found = Schema.from_dict(given)
    assert found.to_dict() == given
    assert found.rule_set is not None
    assert found.rule_set["domainRules"][0].mode == "LATER"


def test_rules_and_metadata_go_through_a_registry(client: SchemaRegistryClient) -> None:
    given = Schema(ORDER, metadata=metadata(), rule_set=RuleSet([], [rule(disabled=True)]))
    number = client.register_schema("orders-value", given)

    assert client.lookup_schema("orders-value", given).schema_id == number
    client.clear_caches()
    found = client.get_schema(number)
    assert found == given
    assert client.get_latest_with_metadata("orders-value", {"owner": "ada"}).schema == given
    AvroSerializer(client, given)({"id": 1}, SerializationContext("orders", MessageField.VALUE))


def test_an_active_rule_is_an_error_that_names_it(client: SchemaRegistryClient) -> None:
    given = Schema(ORDER, rule_set=RuleSet(None, [rule(), rule("off", disabled=True)]))
    serialize = AvroSerializer(client, given)
    with pytest.raises(SerializationError, match=r"does not apply: hide \(ENCRYPT\)\."):
        serialize({"id": 1}, SerializationContext("orders", MessageField.VALUE))


def test_a_configuration_has_the_classes() -> None:
    given = ServerConfig(default_metadata=metadata(), override_rule_set=RuleSet([], [rule()]))
    found = given.to_dict()
    assert found == {
        "defaultMetadata": METADATA,
        "overrideRuleSet": {"migrationRules": [], "domainRules": [RULE]},
    }
    assert ServerConfig.from_dict(found) == given
    assert isinstance(ServerConfig.from_dict(found).override_rule_set, RuleSet)


@pytest.mark.parametrize("name", ["metadata", "rule_set"])
def test_another_type_is_an_error(name: str) -> None:
    given: Any = {name: "owner"}
    with pytest.raises(TypeError, match=f"^{name}: expected .* or dict, got str"):
        Schema(ORDER, **given)


@pytest.mark.parametrize(
    "name",
    ["Metadata", "MetadataProperties", "MetadataTags", "Rule", "RuleKind", "RuleMode",
     "RuleParams", "RuleSet"],
)  # fmt: skip
def test_names_and_arguments_are_those_of_confluent_kafka(name: str) -> None:
    theirs = pytest.importorskip("confluent_kafka.schema_registry")
    of, ours = getattr(theirs, name), getattr(schemas, name)
    if name in ("RuleKind", "RuleMode"):
        assert {each.name: each.value for each in ours} == {each.name: each.value for each in of}
    else:
        parameters = list(inspect.signature(of).parameters)
        assert list(inspect.signature(ours).parameters) == parameters
        assert all(hasattr(ours, parameter) for parameter in parameters)


def test_objects_of_confluent_kafka_are_accepted() -> None:
    theirs = pytest.importorskip("confluent_kafka.schema_registry")
    kind, mode = theirs.RuleKind.TRANSFORM, theirs.RuleMode.WRITEREAD
    params = theirs.RuleParams({"encrypt.kek.name": "kek"})
    of = theirs.Rule("hide", "hides", kind, mode, "ENCRYPT", ["PII"], params, "true", "NONE",
                     "ERROR", False)  # fmt: skip
    tags = theirs.MetadataTags({"Order.id": ["PII"]})
    properties = theirs.MetadataProperties({"owner": "ada"})

    found = Schema(
        ORDER,
        metadata=theirs.Metadata(tags, properties, ["owner"]),
        rule_set=theirs.RuleSet([], [of], enable_at="CLIENT"),
    ).to_dict()

    assert found["metadata"] == METADATA
    assert found["ruleSet"] == {**RULES} | (
        {"encodingRules": []} if "encodingRules" in found["ruleSet"] else {}
    )
    mixed = RuleSet(None, [of])
    assert mixed.to_dict() == {"domainRules": [RULE]}
