"""Modules of cykafka under the name of another library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_Explain = Callable[[str], str | None]


class Alias:
    """The name of another library, for modules of cykafka.

    Parameters
    ----------
    name : str
        The library's top module.
    call : str
        How to install the alias, for the text of an error.
    """

    def __init__(self, name: str, call: str) -> None:
        self._name = name
        self._call = call
        self._top: ModuleType | None = None
        self._finder: _Finder | None = None

    def is_installed(self) -> bool:
        """Whether the name stands for cykafka's modules now."""
        return self._top is not None and sys.modules.get(self._name) is self._top

    def check(self) -> None:
        """Raise ImportError if the library is imported already; its users would go on using it."""
        present = sys.modules.get(self._name)
        if present is not None and present is not self._top:
            raise ImportError(
                f"{self._name} is already imported, from {getattr(present, '__file__', None)}: "
                f"call {self._call} before anything imports it",
                name=self._name,
            )

    def install(self, modules: Mapping[str, ModuleType], explain: _Explain) -> None:
        """Put the modules into ``sys.modules``.

        Parameters
        ----------
        modules : mapping of str to module
            By their names in the other library, with the top module.
        explain : callable
            Gets the name of a module of the library that is not in `modules`. Returns the text of
            the ModuleNotFoundError, or None: Python then looks for the module.
        """
        self._top = modules[self._name]
        self._finder = _Finder(self._name, explain)
        sys.meta_path.insert(0, self._finder)
        sys.modules.update(modules)

    def uninstall(self) -> None:
        """Remove the modules. Code that has already imported them keeps them."""
        if self._finder is None:
            return
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._finder = self._top = None
        for name in [name for name in sys.modules if name.split(".")[0] == self._name]:
            del sys.modules[name]


class _Finder:
    """Raises a helpful error for modules that neither cykafka nor an installed package has."""

    def __init__(self, name: str, explain: _Explain) -> None:
        self._prefix = f"{name}."
        self._explain = explain

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith(self._prefix):
            text = self._explain(fullname)
            if text is not None:
                raise ModuleNotFoundError(text, name=fullname)
        return None
