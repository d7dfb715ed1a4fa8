"""Run a command under AddressSanitizer; only leaks of cykafka and librdkafka count.

    python sanitized.py FOLDER COMMAND...

`FOLDER/site` holds the instrumented package. This process starts the brokers for tests of
`tests/broker`, because Java does not run with the sanitizers' libraries. CPython leaves much
memory allocated at its exit. So a leak counts only if our code or librdkafka called the allocator.
Tests that count live handles and memory find leaked Python objects.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cykafka.testing import KafkaCluster

# By the file of a stack frame: our modules, our core, or librdkafka.
OURS = re.compile(r"/cykafka/.+\.so|/librdkafka\.so")
ALLOCATOR = re.compile(r"/lib[alu]+san\.so")
PIDS = "pids"
FRAME_FORMAT = "    #%n %f %S (%m)"
REPORT = "report"
TRACER = "LeakSanitizer has encountered a fatal error"


def environment(folder: Path) -> dict[str, str]:
    """The environment variables that preload the sanitizers' libraries."""
    libraries = [
        subprocess.run(
            [os.environ.get("CC") or "gcc", f"-print-file-name={name}"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]  # fmt: skip
    common = f"log_path='{folder / REPORT}':stack_trace_format='{FRAME_FORMAT}'"
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONPATH": str(folder / "site"),
        # Where the test processes write their process ids; see tests/conftest.py.
        "CYKAFKA_TEST_PIDS": str(folder / PIDS),
        # Objects from the C allocator, where the sanitizer sees them.
        "PYTHONMALLOC": "malloc",
        # The reports decide about errors and leaks, not the exit status: a leak check that fails
        # itself ends its process like an error, although the test is right. gcc 12 guesses the
        # place of a library's thread-local storage from the allocation before it. The leak check
        # may then examine no memory at all.
        "ASAN_OPTIONS": f"detect_leaks=1:abort_on_error=0:intercept_tls_get_addr=0:{common}",
        "LSAN_OPTIONS": "exitcode=0",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{common}",
    }


def is_our_leak(block: str) -> bool:
    """Whether our code or librdkafka is the first caller of the allocator in a leak's stack."""
    frames = re.findall(r"^\s+#\d+ .*$", block, re.MULTILINE)
    callers = [frame for frame in frames if not ALLOCATOR.search(frame)]
    return bool(callers) and OURS.search(callers[0]) is not None


def findings(report: str) -> list[str]:
    """The sanitizers' errors and our leaks in the report of one process."""
    found = []
    for block in re.split(r"\n\s*\n", report):
        if re.match(r"\s*(Direct|Indirect) leak of", block):
            if is_our_leak(block):
                found.append(block)
        elif re.search(r"runtime error:|ERROR: AddressSanitizer|Sanitizer has encountered", block):
            return [report]
    return found


def run(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Run the command to its end, with brokers if its tests need them."""
    variables = environment(folder)
    with contextlib.ExitStack() as stack:
        if any(word.startswith("tests/broker") for word in command):
            cluster = stack.enter_context(KafkaCluster())
            variables["CYKAFKA_TEST_BOOTSTRAP"] = cluster.bootstrap_servers
        process = subprocess.Popen(command, env=variables)
        process.wait()
        return process


def main() -> int:
    folder = Path(sys.argv[1]).absolute()
    for old in folder.glob(f"{REPORT}.*"):
        old.unlink()
    shutil.rmtree(folder / PIDS, ignore_errors=True)
    (folder / PIDS).mkdir()
    process = run(sys.argv[2:], folder)
    testers = {path.name for path in (folder / PIDS).iterdir()}
    found = []
    unjudged = 0
    for path in sorted(folder.glob(f"{REPORT}.*")):
        report = path.read_text(errors="replace")
        # The leak check may fail because threads end during it. This may be ignored for a script
        # that a test started, but not for a process that runs tests.
        if TRACER in report and path.suffix.removeprefix(".") not in testers:
            unjudged += 1
        else:
            found += findings(report)
    for finding in found:
        print(finding, end="\n\n")
    print(
        f"sanitizers: {len(found)} findings of ours, {unjudged} processes whose leaks could not "
        f"be looked for, the tests' exit status is {process.returncode}"
    )
    return 1 if found else process.returncode


if __name__ == "__main__":
    sys.exit(main())
