"""What a Schema Registry for tests keeps, and how it responds to requests."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from cykafka.testing._avro_compatibility import AvroSchema

_TYPES = ("AVRO", "JSON", "PROTOBUF")
_LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_QUALIFIED = re.compile(r":(?P<context>\.[^:]*):(?P<name>.*)", re.DOTALL)


class RequestError(Exception):
    """An error that the registry responds with.

    Parameters
    ----------
    status : int
        The HTTP status.
    code : int
        The registry's code.
    message : str
    """

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.content = {"error_code": code, "message": message}


@dataclass
class _Version:
    number: int
    id: int
    is_deleted: bool = False


@dataclass
class _Subject:
    """A subject. The versions' numbers continue after a deletion."""

    versions: list[_Version] = field(default_factory=list)
    last: int = 0


class RegistryState:
    """The schemas and subjects. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._schemas: dict[str, dict[int, dict[str, Any]]] = {}  # context -> id -> schema
        self._subjects: dict[str, _Subject] = {}
        self._config: dict[str, dict[str, Any]] = {"": {"compatibilityLevel": "BACKWARD"}}
        self._modes = {"": "READWRITE"}
        self._last_ids: Counter[str] = Counter()  # of each context
        self._associations: list[dict[str, Any]] = []

    def add(self, subject: str, body: Mapping[str, Any], *, normalize: bool = False) -> _Version:
        """Register a schema without a check for compatibility."""
        subject = _name(subject)
        with self._lock:
            document = _document(body)
            schemas = self._schemas.setdefault(_context(subject), {})
            number = next(
                (id for id, known in schemas.items() if _equal(known, document, normalize)), None
            )
            if number is None:
                number = self._last_ids[_context(subject)] = self._last_ids[_context(subject)] + 1
                schemas[number] = document
            of = self._subjects.setdefault(subject, _Subject())
            for version in of.versions:
                if version.id == number and not version.is_deleted:
                    return version
            of.last += 1
            of.versions.append(_Version(of.last, number))
            return of.versions[-1]

    def associate(self, association: Mapping[str, Any]) -> None:
        """Associate a subject with a topic."""
        with self._lock:
            self._associations.append(dict(association))

    def subjects(self) -> dict[str, list[int]]:
        """Return the ids of each subject's versions, without deleted versions."""
        with self._lock:
            return {
                name: [version.id for version in of.versions if not version.is_deleted]
                for name, of in self._subjects.items()
            }

    def respond(self, method: str, path: str, query: Mapping[str, list[str]], body: Any) -> Any:
        """Return the response's content. Raises RequestError."""
        # /contexts/.name/subjects/x is the subject :.name:x.
        match = re.fullmatch(r"/contexts/(\.[^/]*)(/.+)", path)
        context = f":{unquote(match[1])}:" if match else ""
        path = match[2] if match else path
        for verb, pattern, respond in _ROUTES:
            found = pattern.fullmatch(path) if verb == method else None
            if found is not None:
                given = {name: unquote(text) for name, text in found.groupdict().items()}
                if "subject" in given:
                    given["subject"] = _name(given["subject"], context)
                with self._lock:
                    return respond(self, _Request(given, query, body, context))
        raise RequestError(404, 404, "HTTP 404 Not Found")

    # -- schemas

    def get_types(self, _: _Request) -> Any:
        return list(_TYPES)

    def get_id(self, request: _Request) -> Any:
        found = self._schema_of_id(request)
        _check_format(found, request.one("format"))
        return _public(found)

    def get_id_text(self, request: _Request) -> Any:
        return json.loads(self._schema_of_id(request)["schema"])

    def get_guid(self, request: _Request) -> Any:
        for schemas in self._schemas.values():
            for schema in schemas.values():
                if schema["guid"] == request.path["guid"]:
                    _check_format(schema, request.one("format"))
                    return _public(schema)
        raise RequestError(404, 40403, f"Schema {request.path['guid']} not found")

    def get_id_subjects(self, request: _Request) -> Any:
        return request.page(list(dict.fromkeys(name for name, _ in self._uses(request))))

    def get_id_versions(self, request: _Request) -> Any:
        uses = self._uses(request)
        return request.page([{"subject": name, "version": each.number} for name, each in uses])

    def _uses(self, request: _Request) -> list[tuple[str, _Version]]:
        self._schema_of_id(request)
        only, context = request.one("subject"), request.id_context
        return [
            (name, version)
            for name, of in self._subjects.items()
            if _context(name) == context and (only is None or not _bare(only) or name == only)
            for version in of.versions
            if version.id == request.id and request.takes(version.is_deleted)
        ]

    def _schema_of_id(self, request: _Request) -> dict[str, Any]:
        found = self._schemas.get(request.id_context, {}).get(request.id)
        if found is None:
            raise RequestError(404, 40403, f"Schema {request.id} not found")
        return found

    # -- subjects

    def get_subjects(self, request: _Request) -> Any:
        prefix = request.one("subjectPrefix") or ""
        prefix = "" if prefix == ":*:" else prefix
        return request.page(
            [
                name
                for name, of in self._subjects.items()
                if name.startswith(prefix)
                and any(request.takes(version.is_deleted) for version in of.versions)
            ]
        )

    def get_versions(self, request: _Request) -> Any:
        found = [
            version.number
            for version in self._subject(request).versions
            if request.takes(version.is_deleted)
        ]
        if not found:
            raise _no_subject(request)
        return request.page(found)

    def get_version(self, request: _Request) -> Any:
        version = self._version(request)
        found = self._registered(request, version)
        _check_format(self._of(request.subject, version), request.one("format"))
        return found

    def get_version_text(self, request: _Request) -> Any:
        return json.loads(self._of(request.subject, self._version(request))["schema"])

    def get_referenced_by(self, request: _Request) -> Any:
        return request.page(self._references_to(request.subject, self._version(request)))

    def get_metadata(self, request: _Request) -> Any:
        wanted = dict(
            zip(request.query.get("key", ()), request.query.get("value", ()), strict=False)
        )
        for version in reversed(self._subject(request).versions):
            metadata = self._of(request.subject, version).get("metadata") or {}
            if wanted.items() <= (metadata.get("properties") or {}).items() and request.takes(
                version.is_deleted
            ):
                return self._registered(request, version)
        raise RequestError(404, 40403, "Schema not found")

    def post_schema(self, request: _Request) -> Any:
        """Find a schema in a subject."""
        of, document = self._subject(request), _document(request.body)
        for version in of.versions:
            known = self._of(request.subject, version)
            if request.takes(version.is_deleted) and _equal(
                known, document, request.is_true("normalize")
            ):
                return self._registered(request, version)
        raise RequestError(404, 40403, "Schema not found")

    def post_version(self, request: _Request) -> Any:
        """Register a schema."""
        subject = request.subject
        if self._modes.get(subject, self._modes[""]).startswith("READONLY"):
            raise RequestError(422, 42205, f"Subject {subject} is in read-only mode")
        self._check_schema(subject, request.body)
        level = self._config.get(subject, self._config[""])["compatibilityLevel"]
        document = _document(request.body)
        others = self._others(subject, level)
        normalize = request.is_true("normalize")
        # A schema that the subject has need not fit the versions after it.
        known = self._others(subject, "FULL_TRANSITIVE")
        if not any(_equal(self._of(subject, each), document, normalize) for each in known):
            found = self._conflicts(subject, document, others, level, must_judge=False)
            if found:
                words = f"Schema being registered is incompatible with an earlier schema: {found}"
                raise RequestError(409, 409, words)
        version = self.add(subject, request.body, normalize=normalize)
        return self._registered(request, version)

    def delete_subject(self, request: _Request) -> Any:
        of = self._subjects.get(request.subject)
        if of is None or not of.versions:
            raise _no_subject(request)
        is_deleted = all(version.is_deleted for version in of.versions)
        words = f"Subject '{request.subject}' was"
        if is_deleted and not request.is_true("permanent"):
            words += " soft deleted. Set permanent=true to delete permanently"
            raise RequestError(404, 40404, words)
        if request.is_true("permanent") and not is_deleted:
            raise RequestError(404, 40405, f"{words} not deleted first before being permanently")
        self._check_unused(request.subject, of.versions)
        numbers = [version.number for version in of.versions if version.is_deleted == is_deleted]
        if is_deleted:
            of.versions.clear()
            self._drop_unused(request.subject)
        for version in of.versions:
            version.is_deleted = True
        return numbers

    def delete_version(self, request: _Request) -> Any:
        is_permanent = request.is_true("permanent")
        version = self._version(request, has_deleted=True)
        words = f"Subject '{request.subject}' Version {version.number} was"
        if version.is_deleted and not is_permanent:
            words += " soft deleted. Set permanent=true to delete permanently"
            raise RequestError(404, 40406, words)
        if is_permanent and not version.is_deleted:
            raise RequestError(404, 40407, f"{words} not deleted first before being permanently")
        self._check_unused(request.subject, [version])
        if is_permanent:
            self._subjects[request.subject].versions.remove(version)
            self._drop_unused(request.subject)
        version.is_deleted = True
        return version.number

    def _subject(self, request: _Request) -> _Subject:
        of = self._subjects.get(request.subject)
        if of is None or not any(request.takes(version.is_deleted) for version in of.versions):
            raise _no_subject(request)
        return of

    def _version(self, request: _Request, *, has_deleted: bool = False) -> _Version:
        text = request.path["version"]
        of = self._subjects.get(request.subject) if has_deleted else self._subject(request)
        if of is None or not of.versions:
            raise _no_subject(request)
        known = [each for each in of.versions if has_deleted or request.takes(each.is_deleted)]
        if text in ("latest", "-1"):
            return known[-1]
        for version in known:
            if str(version.number) == text:
                return version
        if not text.isdecimal() or not int(text):
            words = f"The specified version '{text}' is not a valid version id."
            raise RequestError(422, 42202, words)
        raise RequestError(404, 40402, f"Version {text} not found.")

    def _of(self, subject: str, version: _Version) -> dict[str, Any]:
        return self._schemas[_context(subject)][version.id]

    def _registered(self, request: _Request, version: _Version) -> dict[str, Any]:
        return {
            "subject": request.subject,
            "version": version.number,
            "id": version.id,
            **_public(self._of(request.subject, version)),
        }

    def _references_to(self, subject: str, version: _Version) -> list[int]:
        """Return the ids of the schemas that refer to a version and are not deleted."""
        found = {
            other.id: None
            for name, of in self._subjects.items()
            for other in of.versions
            if not other.is_deleted
            for each in self._of(name, other)["references"]
            if (_name(each["subject"], _prefix(name)), each["version"])
            == (subject, version.number)
        }
        return list(found)

    def _check_unused(self, subject: str, versions: list[_Version]) -> None:
        for version in versions:
            if self._references_to(subject, version):
                words = f"One or more references exist to the schema {subject}:{version.number}"
                raise RequestError(422, 42206, words)

    def _drop_unused(self, subject: str) -> None:
        """Forget the schemas that no version has."""
        context = _context(subject)
        used = {
            version.id
            for name, of in self._subjects.items()
            if _context(name) == context
            for version in of.versions
        }
        schemas = self._schemas[context]
        for number in schemas.keys() - used:
            schemas.pop(number)

    # -- compatibility, configuration, modes

    def post_compatibility(self, request: _Request) -> Any:
        subject = request.subject
        self._check_schema(subject, request.body)
        level = self._config.get(subject, self._config[""])["compatibilityLevel"]
        if "version" in request.path:
            # Unlike with registration, a version that does not exist is an error.
            others = [self._version(request)]
        else:
            others = self._others(subject, level)
        found = self._conflicts(subject, _document(request.body), others, level, must_judge=True)
        if request.is_true("verbose"):
            return {"is_compatible": not found, "messages": found}
        return {"is_compatible": not found}

    def get_config(self, request: _Request) -> Any:
        return self._setting(request, self._config, 40408, "compatibility level")

    def put_config(self, request: _Request) -> Any:
        body = dict(request.fields)
        level = body.pop("compatibility", None) or body.pop("compatibilityLevel", "BACKWARD")
        if level not in _LEVELS:
            words = f"Invalid compatibility level. Valid values are {', '.join(_LEVELS)}"
            raise RequestError(422, 42203, words)
        self._config[request.path.get("subject", "")] = {**body, "compatibilityLevel": level}
        return {**body, "compatibility": level}

    def delete_config(self, request: _Request) -> Any:
        found = self.get_config(request)
        self._config.pop(request.path.get("subject", ""), None)
        self._config.setdefault("", {"compatibilityLevel": "BACKWARD"})
        return found

    def get_mode(self, request: _Request) -> Any:
        return {"mode": self._setting(request, self._modes, 40409, "mode")}

    def put_mode(self, request: _Request) -> Any:
        mode = request.fields.get("mode")
        if mode not in _MODES:
            raise RequestError(422, 42204, f"Invalid mode. Valid values are {', '.join(_MODES)}")
        self._modes[request.path.get("subject", "")] = mode
        return {"mode": mode}

    def delete_mode(self, request: _Request) -> Any:
        found = self.get_mode(request)
        self._modes.pop(request.subject)
        return found

    def _setting(self, request: _Request, of: Mapping[str, Any], code: int, what: str) -> Any:
        subject = request.path.get("subject", "")
        if subject in of or request.is_true("defaultToGlobal"):
            return of.get(subject, of[""])
        words = f"Subject '{subject}' does not have subject-level {what} configured"
        raise RequestError(404, code, words)

    def _others(self, subject: str, level: str) -> list[_Version]:
        """Return the versions that a level names."""
        versions = self._subjects.get(subject, _Subject()).versions
        known = [version for version in versions if not version.is_deleted]
        return known if level.endswith("_TRANSITIVE") else known[-1:]

    def _conflicts(
        self, subject: str, document: dict[str, Any], others: list[_Version], level: str,
        *, must_judge: bool,
    ) -> list[str]:  # fmt: skip
        """Return why a schema is incompatible with others."""
        found = []
        kinds = {self._of(subject, other)["schemaType"] for other in others}
        if level == "NONE" or not others:
            return []
        if kinds != {document["schemaType"]}:
            return [f"the type is {document['schemaType']}, expected {' or '.join(kinds)}"]
        if kinds != {"AVRO"}:
            different = [
                each for each in others if not _equal(self._of(subject, each), document, True)
            ]
            if different and must_judge:
                words = f"this registry for tests cannot compare schemas of {kinds.pop()}"
                raise RequestError(501, 50101, words)
            return []
        new = self._avro(subject, document)
        for other in others:
            old = self._avro(subject, self._of(subject, other))
            if level.startswith(("BACKWARD", "FULL")):
                found += old.mistakes_of_reader(new)
            if level.startswith(("FORWARD", "FULL")):
                found += new.mistakes_of_reader(old)
        return found

    def _check_schema(self, subject: str, body: Any) -> None:
        document = _document(body)
        try:
            if document["schemaType"] == "AVRO":
                self._avro(subject, document)
            else:
                list(self._parts(subject, document, set()))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise RequestError(
                422, 42201, f"Invalid schema of type {document['schemaType']}, details: {error}"
            ) from None

    def _avro(self, subject: str, document: Mapping[str, Any]) -> AvroSchema:
        parts = [json.loads(part["schema"]) for part in self._parts(subject, document, set())]
        return AvroSchema(json.loads(document["schema"]), parts)

    def _parts(
        self, subject: str, document: Mapping[str, Any], seen: set[tuple[str, int]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the schemas that a schema refers to, each once, after its own references."""
        for reference in document["references"]:
            name = _name(reference["subject"], _prefix(subject))
            number = int(reference["version"])
            if (name, number) in seen:
                continue
            seen.add((name, number))
            of = self._subjects.get(name, _Subject())
            version = next((each for each in of.versions if each.number == number), None)
            if version is None:
                raise ValueError(f"no schema reference found for subject {name} version {number}")
            part = self._of(name, version)
            yield from self._parts(name, part, seen)
            yield part

    # -- others

    def get_contexts(self, request: _Request) -> Any:
        return request.page(sorted({".", *self._schemas}))

    def get_associations(self, request: _Request) -> Any:
        namespace, resource = request.path["namespace"], request.path["resource"]
        kinds = request.query.get("associationType")
        return request.page(
            [
                each
                for each in self._associations
                if each["resourceName"] == resource
                and namespace in ("-", each["resourceNamespace"])
                and (not kinds or each["associationType"] in kinds)
                and request.one("resourceType") in (None, each["resourceType"])
            ]
        )


@dataclass(frozen=True)
class _Request:
    """A request that has a route.

    Parameters
    ----------
    path : mapping of str to str
        The variable parts of the path.
    query : mapping of str to list of str
    body : Any
        The body's JSON.
    context : str
        ``:.name:``, or "" for the default context.
    """

    path: Mapping[str, str]
    query: Mapping[str, list[str]]
    body: Any
    context: str

    @property
    def subject(self) -> str:
        return self.path["subject"]

    @property
    def fields(self) -> Mapping[str, Any]:
        """The body, which must be an object or missing."""
        body = {} if self.body is None else self.body
        if not isinstance(body, dict):
            raise RequestError(422, 422, "Unprocessable entity: expected a JSON object")
        return body

    @property
    def id(self) -> int:
        return int(self.path["id"])

    @property
    def id_context(self) -> str:
        return _context(_name(self.one("subject") or "", self.context))

    def one(self, name: str) -> str | None:
        return self.query.get(name, [None])[0]

    def is_true(self, name: str) -> bool:
        return (self.one(name) or "").lower() == "true"

    def takes(self, is_deleted: bool) -> bool:
        """Whether the response contains a version that is deleted, or one that is not."""
        if self.is_true("deleted_only"):
            return is_deleted
        return self.is_true("deleted") or not is_deleted

    def page(self, found: list[Any]) -> list[Any]:
        offset, limit = int(self.one("offset") or 0), int(self.one("limit") or -1)
        return found[offset : offset + limit if limit >= 0 else None]


def _name(subject: str, context: str = "") -> str:
    """Return a subject's name, with its context unless that is the default one."""
    if not _QUALIFIED.fullmatch(subject):
        subject = f"{context}{subject}"
    return subject.removeprefix(":.:")


def _context(subject: str) -> str:
    match = _QUALIFIED.fullmatch(subject)
    return match["context"] if match else "."


def _prefix(subject: str) -> str:
    """Return the prefix of other subjects in the same context."""
    return f":{_context(subject)}:"


def _bare(subject: str) -> str:
    match = _QUALIFIED.fullmatch(subject)
    return match["name"] if match else subject


def _document(body: Any) -> dict[str, Any]:
    """Return a schema as the registry keeps it. Raises RequestError if it is not a schema."""
    if not isinstance(body, dict) or not isinstance(body.get("schema"), str):
        raise RequestError(422, 42201, "Empty schema")
    kind = body.get("schemaType") or "AVRO"
    if kind not in _TYPES:
        raise RequestError(422, 42201, f"Invalid schema type {kind}")
    document = {
        "schema": body["schema"],
        "schemaType": kind,
        "references": [dict(each) for each in body.get("references") or ()],
        "metadata": body.get("metadata"),
        "ruleSet": body.get("ruleSet"),
    }
    if kind != "PROTOBUF":
        try:
            json.loads(body["schema"])
        except (ValueError, RecursionError) as error:
            raise RequestError(422, 42201, f"Invalid schema, details: {error}") from None
    octets = json.dumps(_comparable(document, False), sort_keys=True).encode()
    guid = hashlib.md5(octets, usedforsecurity=False).digest()
    return {**document, "guid": str(UUID(bytes=guid))}


def _comparable(document: Mapping[str, Any], normalize: bool) -> dict[str, Any]:
    """Return a schema without differences in spaces, or with `normalize` in order either."""
    schema = document["schema"]
    if document["schemaType"] != "PROTOBUF":
        schema = json.dumps(json.loads(schema), sort_keys=normalize)
    names = ("schemaType", "references", "metadata", "ruleSet")
    return {"schema": schema, **{name: document[name] for name in names}}


def _equal(known: Mapping[str, Any], other: Mapping[str, Any], normalize: bool) -> bool:
    return _comparable(known, normalize) == _comparable(other, normalize)


def _public(schema: Mapping[str, Any]) -> dict[str, Any]:
    # The registry leaves out what is empty, and the type of Avro.
    found = {name: value for name, value in schema.items() if value}
    if found["schemaType"] == "AVRO":
        del found["schemaType"]
    return found


def _check_format(schema: Mapping[str, Any], given: str | None) -> None:
    if given == "serialized" and schema["schemaType"] != "PROTOBUF":
        # So do some versions of Confluent's registry.
        raise RequestError(500, 500, "Internal Server Error")


def _no_subject(request: _Request) -> RequestError:
    return RequestError(404, 40401, f"Subject '{request.subject}' not found.")


_Respond = Callable[[RegistryState, _Request], Any]
_STATE = RegistryState


def _route(method: str, path: str, respond: _Respond) -> tuple[str, re.Pattern[str], _Respond]:
    path = path.replace("<id>", r"(?P<id>\d+)")
    return method, re.compile(re.sub(r"/<(\w+)>", r"/(?P<\1>[^/]+)", path)), respond


_ROUTES = [
    _route("GET", "/schemas/types", _STATE.get_types),
    _route("GET", "/schemas/ids/<id>", _STATE.get_id),
    _route("GET", "/schemas/ids/<id>/schema", _STATE.get_id_text),
    _route("GET", "/schemas/ids/<id>/subjects", _STATE.get_id_subjects),
    _route("GET", "/schemas/ids/<id>/versions", _STATE.get_id_versions),
    _route("GET", "/schemas/guids/<guid>", _STATE.get_guid),
    _route("GET", "/subjects", _STATE.get_subjects),
    _route("POST", "/subjects/<subject>", _STATE.post_schema),
    _route("DELETE", "/subjects/<subject>", _STATE.delete_subject),
    _route("GET", "/subjects/<subject>/metadata", _STATE.get_metadata),
    _route("GET", "/subjects/<subject>/versions", _STATE.get_versions),
    _route("POST", "/subjects/<subject>/versions", _STATE.post_version),
    _route("GET", "/subjects/<subject>/versions/<version>", _STATE.get_version),
    _route("DELETE", "/subjects/<subject>/versions/<version>", _STATE.delete_version),
    _route("GET", "/subjects/<subject>/versions/<version>/schema", _STATE.get_version_text),
    _route("GET", "/subjects/<subject>/versions/<version>/referencedby", _STATE.get_referenced_by),
    _route("POST", "/compatibility/subjects/<subject>/versions", _STATE.post_compatibility),
    _route(
        "POST", "/compatibility/subjects/<subject>/versions/<version>", _STATE.post_compatibility
    ),
    _route("GET", "/config", _STATE.get_config),
    _route("PUT", "/config", _STATE.put_config),
    _route("DELETE", "/config", _STATE.delete_config),
    _route("GET", "/config/<subject>", _STATE.get_config),
    _route("PUT", "/config/<subject>", _STATE.put_config),
    _route("DELETE", "/config/<subject>", _STATE.delete_config),
    _route("GET", "/mode", _STATE.get_mode),
    _route("PUT", "/mode", _STATE.put_mode),
    _route("GET", "/mode/<subject>", _STATE.get_mode),
    _route("PUT", "/mode/<subject>", _STATE.put_mode),
    _route("DELETE", "/mode/<subject>", _STATE.delete_mode),
    _route("GET", "/contexts", _STATE.get_contexts),
    _route("GET", "/associations/resources/<namespace>/<resource>", _STATE.get_associations),
]
