"""Which tests run at the same time in a run with several workers (pytest-xdist).

The unit of work is a file or a group. A group is tests that share something slow to start, such as
a Spark session; they run one after another in one worker, whatever their files. A test marked
`alone` waits until no other test runs, and no other test starts before it ends.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

try:
    from xdist.scheduler import LoadGroupScheduling
except ImportError:  # without xdist all tests run one after another
    LoadGroupScheduling = object

HERE = Path(__file__).parents[1]
ALONE = "alone"
# The longest group first, because the run lasts as long as its last worker. A test belongs to the
# first group that has its path or a fixture it uses. Spark has three groups of about the same
# length.
GROUPS: dict[str, tuple[set[str], set[str]]] = {
    "spark-beside": (
        {
            "spark/jvm_connector",
            *(
                f"spark/jobs/test_{name}.py"
                for name in ("archive_kills", "commands", "jobs_killed")
            ),
        },
        set(),
    ),
    "spark-jobs": ({"spark/jobs"}, set()),
    "spark": ({"spark"}, {"secured", "tidy"}),
    "three-brokers": (set(), {"kafka_cluster_3"}),
    "own-brokers": (set(), {"kafka_cluster_factory", "own_brokers"}),
}


def group_of(item: pytest.Item) -> str | None:
    """The group of a test; None for its file."""
    if item.get_closest_marker(ALONE):
        return ALONE
    path = item.path.relative_to(HERE)
    places = {str(part) for part in (path, *path.parents)}
    fixtures = set(getattr(item, "fixturenames", ()))
    for group, (paths, used) in GROUPS.items():
        if paths & places or used & fixtures:
            return group
    return None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    order = {group: number for number, group in enumerate((*GROUPS, None, ALONE))}
    groups = {item: group_of(item) for item in items}
    items.sort(key=lambda item: order[groups[item]])
    for item, group in groups.items():
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


class ByFileOrGroup(LoadGroupScheduling):  # type: ignore[misc]
    """xdist's scheduler of groups. A test without a group has its file as its group."""

    def _split_scope(self, nodeid: str) -> str:
        return str(super()._split_scope(nodeid)).partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    config.option.loadscopereorder = False
    return ByFileOrGroup(config, log) if config.option.dist == "loadgroup" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the wait for the lock must not count as test time
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if not hasattr(item.config, "workerinput"):
        return (yield)
    machine = item.config._tmp_path_factory.getbasetemp().parent / "machine"
    with machine.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if item.get_closest_marker(ALONE) else fcntl.LOCK_SH)
        return (yield)
