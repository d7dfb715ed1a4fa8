"""Parts of pip_services4_kafka on their own; they need the extra pip-services."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pip_services4_messaging") else ["test_*.py"]
