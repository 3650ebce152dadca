"""A module that is loaded only when more is asked of it than its stand-in knows."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_ASKED = ("__path__", "__all__", "__version__")
"""By an import of a submodule, an import of everything, and people. Other such names are asked of all modules alike."""


class Later(ModuleType):
    """Stands for a module that is not loaded yet; from the first question that it cannot answer on, it asks that.

    Args:
        name: The module's full name.
        known: What it answers itself, as long as the module is not loaded.
    """

    def __init__(self, name: str, known: dict[str, Any]) -> None:
        super().__init__(name)
        self.__spec__ = importlib.util.find_spec(name)
        self._is_package = bool(self.__spec__ and self.__spec__.submodule_search_locations)
        self._known = tuple(known)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and (name not in _ASKED or (name == "__path__" and not self._is_package)):
            raise AttributeError(name)
        return getattr(self.real(), name)

    def real(self) -> ModuleType:
        """The module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            for known in self._known:
                self.__dict__.pop(known, None)
        return importlib.import_module(self.__name__)


class _Loaded(MetaPathFinder, Loader):
    """Submodules that came with their package while they were being imported: they are not made a second time."""

    def __init__(self) -> None:
        self.packages: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in sys.modules:
            return None
        ours = any(fullname.startswith(f"{package}.") for package in self.packages)
        return ModuleSpec(fullname, self) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        pass


_loaded = _Loaded()


def load_later(name: str, **known: Any) -> None:
    """Put a stand-in in a module's place, for good, unless the module is loaded or is not there to be loaded."""
    if name in sys.modules:
        return
    stand_in = Later(name, known)
    if stand_in.__spec__ is None:
        return
    sys.modules[name] = stand_in
    package, _, child = name.rpartition(".")
    if package:
        setattr(sys.modules[package], child, stand_in)
    _loaded.packages.add(name)
    if _loaded not in sys.meta_path:
        sys.meta_path.insert(0, _loaded)
