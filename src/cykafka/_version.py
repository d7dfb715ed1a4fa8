"""The one place the version is read from."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("cykafka")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
