"""cykafka's modules under another library's name, and scripts that run with them."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

_Explain = Callable[[str], str | None]


class Alias:
    """Another library's name for cykafka's modules.

    Parameters
    ----------
    name : str
        The library's top module.
    call : str
        How to install the alias, for an error message.
    """

    def __init__(self, name: str, call: str) -> None:
        self._name = name
        self._call = call
        self._top: ModuleType | None = None
        self._finder: _Finder | None = None

    def is_installed(self) -> bool:
        """Whether the name refers to cykafka's modules now."""
        return self._top is not None and sys.modules.get(self._name) is self._top

    def check(self) -> None:
        """Raise ImportError if the library is already imported: its users would keep using it."""
        present = sys.modules.get(self._name)
        if present is not None and present is not self._top:
            raise ImportError(
                f"{self._name} is already imported, from {getattr(present, '__file__', None)}: "
                f"call {self._call} before anything imports it",
                name=self._name,
            )

    def install(
        self,
        modules: Mapping[str, ModuleType],
        explain: _Explain,
        later: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Put the modules into ``sys.modules``.

        Parameters
        ----------
        modules : mapping of str to module
            The modules by their names in the other library, including the top module.
        explain : callable
            Called with the name of a library module that is not in `modules`. Returns the text for
            the ModuleNotFoundError. If it returns None, Python looks for the module.
        later : mapping of str to sequence of str, optional
            Modules that need more packages: a module's name in the other library, and the modules
            whose public names it gets when the program imports it.
        """
        self._top = modules[self._name]
        self._finder = _Finder(self._name, explain, later or {})
        sys.meta_path.insert(0, self._finder)
        sys.modules.update(modules)

    def uninstall(self) -> None:
        """Remove the modules. Code that has already imported them is not affected."""
        if self._finder is None:
            return
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._finder = self._top = None
        for name in [name for name in sys.modules if name.split(".")[0] == self._name]:
            del sys.modules[name]


class _Finder:
    """Finds the modules that are imported later, and raises a helpful error for those that
    cykafka and installed packages lack."""

    def __init__(self, name: str, explain: _Explain, later: Mapping[str, Sequence[str]]) -> None:
        self._prefix = f"{name}."
        self._explain = explain
        self._later = later

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._later:
            is_package = any(name.startswith(f"{fullname}.") for name in self._later)
            loader = _Loader(self._later[fullname])
            return ModuleSpec(fullname, loader, origin=__file__, is_package=is_package)
        if fullname.startswith(self._prefix):
            text = self._explain(fullname)
            if text is not None:
                raise ModuleNotFoundError(text, name=fullname)
        return None


class _Loader(Loader):
    """Fills a module with the public names of others."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        names: list[str] = []
        for source in map(importlib.import_module, self._sources):
            module.__dict__.update({name: getattr(source, name) for name in source.__all__})
            names += source.__all__
        module.__all__ = names  # type: ignore[attr-defined]


def run_script(arguments: list[str], usage: str, install: Callable[[], None]) -> int:
    """Run ``script.py argument ...`` or ``-m module argument ...`` after `install`.

    Parameters
    ----------
    arguments : list of str
    usage : str
        Printed for ``--help``, and to stderr if the arguments do not name a script.
    install : callable

    Returns
    -------
    int
        The exit status. Exceptions from the script propagate.
    """
    if arguments and arguments[0] in ("-h", "--help"):
        print(usage)
        return 0
    as_module = arguments[:1] == ["-m"]
    rest = arguments[as_module:]
    wrong = None
    if not rest:
        wrong = "expected a module" if as_module else "expected a script, or -m and a module"
    elif rest[0].startswith("-"):
        wrong = f"unknown option {rest[0]}"
    elif not as_module and not os.path.exists(rest[0]):
        wrong = f"cannot open {rest[0]}: no such file"
    if wrong is not None:
        print(f"{usage}\n\n{wrong}", file=sys.stderr)
        return 2
    install()
    sys.argv = rest
    if as_module:
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return 0
    if not sys.flags.safe_path:
        # Like Python: the script's directory instead of the current one.
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
    runpy.run_path(rest[0], run_name="__main__")
    return 0
