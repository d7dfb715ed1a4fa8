"""One loop of a Python client, in a separate process.

    python _client.py FILE:LOOP MODULE TOPIC MESSAGES VALUE_SIZE PARTITIONS [KEY=VALUE ...]

Runs ``LOOP`` of ``clients/FILE.py`` with the client ``MODULE`` and prints one JSON line, like the
floor programs.
"""

from __future__ import annotations

import importlib
import json
import sys

from clients._section import Arguments


def main() -> None:
    loop, module, topic, messages, value_size, partitions, *pairs = sys.argv[1:]
    file, function = loop.split(":")
    client = importlib.import_module(module)
    args = Arguments(
        client,
        topic,
        int(messages),
        int(value_size),
        int(partitions),
        dict(pair.split("=", 1) for pair in pairs),
    )
    result = getattr(importlib.import_module(f"clients.{file}"), function)(args)
    if hasattr(client, "libversion"):
        result["librdkafka"] = client.libversion()[0]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
