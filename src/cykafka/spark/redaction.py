"""Which options nobody wants to find in a log: of Kafka's clients, Spark and file systems."""

from __future__ import annotations

import re

__all__ = ["REDACTED", "is_secret"]

# For Python and for Java: `spark.redaction.regex`, which looks for it in values, too.
REDACTED = (
    "(?i)secret|password|passphrase|passwd|token|credential|jaas|signature|access[._-]?key"
    "|account[._-]?key|private[._-]?key|api[._-]?key|keystore[.]key|key[.]pem|[._]sas([._]|$)"
    "|oauthbearer[.]config"
)
_SECRET = re.compile(REDACTED)


def is_secret(key: str) -> bool:
    """Whether the value of an option, a property or an entry is nobody's business.

    Parameters
    ----------
    key : str
        With or without prefixes (``kafka.``, ``spark.hadoop.``), in any case.
    """
    return _SECRET.search(key) is not None
