"""Which options of Kafka clients, Spark and file systems are secrets, to hide them in logs."""

from __future__ import annotations

import re

__all__ = ["REDACTED", "is_secret"]

# A pattern for Python and for Java's `spark.redaction.regex`, which Spark also matches to values.
REDACTED = (
    "(?i)secret|password|passphrase|passwd|token|credential|jaas|signature|access[._-]?key"
    "|account[._-]?key|private[._-]?key|api[._-]?key|keystore[.]key|key[.]pem|[._]sas([._]|$)"
    "|oauthbearer[.]config|auth[.]user[.]info"
)
_SECRET = re.compile(REDACTED)


def is_secret(key: str) -> bool:
    """Whether the value of an option, a property or an entry is secret.

    Parameters
    ----------
    key : str
        With or without prefixes (``kafka.``, ``spark.hadoop.``), in any case.
    """
    return _SECRET.search(key) is not None
