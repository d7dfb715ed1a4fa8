"""The test times in JUnit XML files, summed by folder.

    make test ARGS="--junitxml=build/tests.xml"
    python tests/shared/minutes.py build/tests.xml

The times are summed over all workers. Divided by the number of workers they are about the duration
of the run.
"""

from __future__ import annotations

import sys
from collections import Counter
from xml.etree import ElementTree

FOLDERS = ("spark.jobs", "spark.jvm_connector", "broker.pip_services", "mock.pip_services")


def folder(classname: str) -> str:
    """The folder of a test, by the dotted name of its module."""
    name = classname.removeprefix("tests.")
    found = next((item for item in FOLDERS if name.startswith(item + ".")), name.split(".")[0])
    return found.replace(".", "/")


def main(paths: list[str]) -> None:
    tests: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            place = folder(case.get("classname", ""))
            tests[place] += 1
            seconds[place] += float(case.get("time", 0))  # type: ignore[assignment]
    print("| folder | tests | minutes |\n| --- | ---: | ---: |")
    for place, spent in seconds.most_common():
        print(f"| `{place}` | {tests[place]} | {spent / 60:.1f} |")
    print(f"| all | {tests.total()} | {seconds.total() / 60:.1f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
