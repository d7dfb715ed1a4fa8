"""The patches in `patches/`: bugs of the pinned librdkafka that no caller can avoid.

Each file is a unified diff with a header like that of an e-mail:

    Description  the effect of the bug for a user, in one line; then the cause, and the change
    Affects      the versions that have the bug
    Fixed-In     the first upstream version without it, or none
    Bug          the upstream report
    Test         the test that fails without the patch

They apply to the pinned version only.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

from librdkafka_source import VendorError

FOLDER = Path(__file__).with_name("patches")


@dataclass(frozen=True)
class Patch:
    """One patch and the fields of its header."""

    path: Path
    effect: str
    fixed_in: str | None

    @property
    def name(self) -> str:
        return self.path.stem

    def apply(self, tree: Path) -> None:
        """Change the source in `tree`.

        Raises
        ------
        VendorError
            A line of the source is not exactly where the patch expects it.
        """
        command = ["patch", "--strip=1", "--fuzz=0", "--forward", "--batch"]
        try:
            done = subprocess.run(
                [*command, f"--directory={tree}", f"--input={self.path}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        except OSError as error:
            raise VendorError(
                f"cannot run patch: {error.strerror}; on Debian: apt-get install patch"
            ) from error
        # patch applies a hunk at another line and prints a message. Here any message is a failure.
        lines = done.stdout.splitlines()
        complaints = [line for line in lines if not line.startswith("patching file ")]
        if done.returncode != 0 or complaints:
            raise VendorError(
                f"{self.path.name} does not apply to this source: {'; '.join(complaints)}"
            )


def load_patches(folder: Path = FOLDER) -> list[Patch]:
    """The patches of a folder, in the order in which they apply."""
    return [_load(path) for path in sorted(folder.glob("*.patch"))]


def _load(path: Path) -> Patch:
    header = message_from_string(path.read_text(encoding="utf-8"))
    missing = [
        field
        for field in ("Description", "Affects", "Fixed-In", "Bug", "Test")
        if not header.get(field, "").strip()
    ]
    if missing:
        raise VendorError(f"{path.name}: its header lacks {', '.join(missing)}")
    fixed_in = header["Fixed-In"].strip()
    return Patch(
        path=path,
        effect=header["Description"].splitlines()[0].strip(),
        fixed_in=None if fixed_in == "none" else fixed_in,
    )
