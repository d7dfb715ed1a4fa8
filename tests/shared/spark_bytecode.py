"""Compile the Python modules in Spark's zip files, once for each environment.

The zip files of pyspark have only sources. Every Python process that Spark starts would compile
them again, which takes 0.7 s of CPU each time.
"""

from __future__ import annotations

import compileall
import os
import shutil
import tempfile
from pathlib import Path
from py_compile import PycInvalidationMode


def compile_zip(path: Path) -> None:
    """Add the compiled modules to the sources. A running reader keeps the old file."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        tree = Path(folder) / "tree"
        shutil.unpack_archive(path, tree)
        compiled = compileall.compile_dir(
            tree,
            legacy=True,
            quiet=1,
            stripdir=tree,
            prependdir=path,
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
        if not compiled:
            raise SystemExit(f"{path}: some modules cannot be compiled")
        os.replace(shutil.make_archive(f"{folder}/new", "zip", tree), path)


if __name__ == "__main__":
    import pyspark

    for path in sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")):
        compile_zip(path)
