"""Describes this build for bug reports, and warns if librdkafka lacks patches."""

from __future__ import annotations

import json
import platform
import warnings
from pathlib import Path
from typing import Any, TypedDict

from cykafka._core.common.config import builtin_features
from cykafka._core.common.library import __version__, is_patched, librdkafka_path, libversion
from cykafka._core.common.naming import public

# Written when the package is built: see vendor/librdkafka.py.
_FACTS = Path(__file__).parents[1] / "librdkafka.json"


class BuildInfo(TypedDict):
    """The result of :func:`build_info`."""

    cykafka: str
    librdkafka: str
    librdkafka_path: str | None
    librdkafka_source: str
    librdkafka_sha256: str | None
    patches: list[str]
    missing_patches: list[str]
    features: list[str]
    python: str
    platform: str


@public("cykafka")
def build_info() -> BuildInfo:
    """Return the components of this build. Paste the result into bug reports.

    Returns
    -------
    dict of str to str, list of str or None
        - ``cykafka``, ``librdkafka``, ``python``: the versions
        - ``platform``
        - ``librdkafka_path``: the loaded file; None if the loader does not know its path
        - ``librdkafka_source``: the source of cykafka's own librdkafka: ``"release"``,
          ``"debian"``, ``"npm"`` or ``"CYKAFKA_LIBRDKAFKA_SOURCE"``; ``"system"`` if the process
          has loaded another librdkafka
        - ``librdkafka_sha256``: the checksum of that source; None for another librdkafka
        - ``patches``: the names of cykafka's patches in the loaded librdkafka
        - ``missing_patches``: the names of the patches that the loaded librdkafka needs and lacks
        - ``features``: librdkafka's property ``builtin.features``
    """
    facts = json.loads(_FACTS.read_text(encoding="utf-8"))
    own = _is_own(facts)
    return {
        "cykafka": __version__,
        "librdkafka": libversion()[0],
        "librdkafka_path": librdkafka_path(),
        "librdkafka_source": facts["source"] if own else "system",
        "librdkafka_sha256": facts["sha256"] if own else None,
        "patches": facts["patches"] if own else [],
        "missing_patches": sorted(_missing(facts)),
        "features": builtin_features(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
    }


def _is_own(facts: dict[str, Any]) -> bool:
    path = librdkafka_path()
    return facts["kind"] == "bundled" and path is not None and Path(path).parent == _FACTS.parent


def _missing(facts: dict[str, Any]) -> dict[str, str]:
    """Return the patches that the loaded librdkafka needs and lacks, with each bug's effect."""
    have = facts["patches"] if _is_own(facts) else []
    version = libversion()[1]
    return {
        name: patch["effect"]
        for name, patch in facts["known_patches"].items()
        if name not in have and not (patch["fixed_in"] and version >= _number(patch["fixed_in"]))
    }


def _number(version: str) -> int:
    """Convert ``"2.15.1"`` to librdkafka's release number, 0x020f01ff."""
    major, minor, patch = (int(part) for part in version.split("."))
    return major << 24 | minor << 16 | patch << 8 | 0xFF


def warn_unless_patched() -> None:
    """Issue a RuntimeWarning if the loaded librdkafka lacks a patch that it needs."""
    if is_patched():
        return
    missing = _missing(json.loads(_FACTS.read_text(encoding="utf-8")))
    if missing:
        warnings.warn(
            f"librdkafka {libversion()[0]} ({librdkafka_path()}) lacks cykafka's patches: "
            f"{'; '.join(missing.values())}. Install cykafka with its own librdkafka: a wheel, or "
            "a build with CYKAFKA_LIBRDKAFKA=bundled. LD_LIBRARY_PATH and LD_PRELOAD must not "
            "name another librdkafka.",
            RuntimeWarning,
            stacklevel=3,
        )
