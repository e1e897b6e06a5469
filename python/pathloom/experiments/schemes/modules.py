"""Modules that schemes in Python import from their own folder, and from packages in that folder.

A scheme gets its modules as they are when it is loaded, whatever other schemes and the calling program have imported.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pathloom.experiments.schemes.imports import imported_names

SCHEME = "pathloom_scheme_file_"
"""Prefix of the names of modules that are made from files of schemes."""

_of_schemes: dict[str, ModuleType] = {}
"""Modules that the last scheme imported when it was loaded."""
_late: set[str] = set()
"""Names of all modules that methods of schemes have imported or may still import."""
_folders: list[str] = []
"""Folders that schemes added to the search path for modules."""


def module_name(path: Path) -> str:
    """The name of the module in a file, whose path begins at the folder in which modules are found.

    >>> module_name(Path("helpers/core.py")), module_name(Path("helpers/__init__.py"))
    ('helpers.core', 'helpers')
    """
    last = inspect.getmodulename(path.name) or path.stem
    return ".".join([*path.parent.parts, *([last] if last != "__init__" else [])])


def first_name(path: Path) -> str:
    """The name of the module in a file up to the first dot: that of the outermost package, if there is one.

    >>> first_name(Path("helpers/core.py")), first_name(Path("late.py"))
    ('helpers', 'late')
    """
    return module_name(path).partition(".")[0]


@contextlib.contextmanager
def imports_from(folder: Path) -> Iterator[set[Path]]:
    """Lets a scheme import modules from a folder, as they are now.

    When the context ends, the set has the files below the folder that were imported, relative to it. Modules that the
    calling program has imported from the folder are as before then.
    """
    _forget()
    _search_first(str(folder))
    aside = {name: module for name, module in list(sys.modules.items()) if _is_replaceable(name, module, folder)}
    for name in aside:
        del sys.modules[name]
    before = dict(sys.modules)
    found: set[Path] = set()
    try:
        with _compiled_anew():
            yield found
    finally:
        new = {name: module for name, module in list(sys.modules.items()) if before.get(name) is not module}
        own = {name: path for name, module in new.items() if (path := _path_below(module, folder)) is not None}
        found.update(own.values())
        names = {parent for name in own for parent in _with_packages(name)}
        _of_schemes.update({name: new[name] for name in names & new.keys()})
        sys.modules.update(aside)


def _forget() -> None:
    """Removes the modules of earlier schemes: the next may need others of the same name, or files have changed."""
    for name, module in _of_schemes.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    for name in _late:
        sys.modules.pop(name, None)
    _of_schemes.clear()
    importlib.invalidate_caches()


def added_folders() -> tuple[str, ...]:
    """Folders that schemes added to the search path for modules."""
    return tuple(_folders)


def adopt(folders: Iterable[str]) -> None:
    """Treats folders as added by schemes: a process gets its search path from the process that starts it."""
    _folders.extend(folder for folder in folders if folder in sys.path and folder not in _folders)


def _search_first(folder: str) -> None:
    """Puts a folder before those of other schemes on the search path for modules, behind all other folders."""
    # A worker removes the folders of past runs.
    gone = [one for one in _folders if one == folder or not os.path.isdir(one)]  # noqa: PTH112
    for one in gone:
        _folders.remove(one)
        with contextlib.suppress(ValueError):
            sys.path.remove(one)
    if folder not in sys.path:
        place = min((sys.path.index(one) for one in _folders if one in sys.path), default=len(sys.path))
        sys.path.insert(place, folder)
        _folders.append(folder)


@contextlib.contextmanager
def _compiled_anew() -> Iterator[None]:
    """Makes imports read source files. A compiled file would count as current if only its text has changed."""
    # Python compares the size and the second of the last change.
    before = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = os.path.join(tempfile.gettempdir(), "pathloom-none"), True  # noqa: PTH118
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


def _is_replaceable(name: str, module: object, folder: Path) -> bool:
    """Whether a module was found in a folder, is no part of this program, and is loaded completely."""
    if name == "__main__" or name.startswith(SCHEME) or name.partition(".")[0] == "pathloom":
        return False
    loading = getattr(_attributes(module).get("__spec__"), "_initializing", False)
    return not loading and str(folder) in _found_in(name, module)


def _path_below(module: object, folder: Path) -> Path | None:
    """The file of a module relative to a folder; None if it is elsewhere, or belongs to an installed library."""
    file = _attributes(module).get("__file__")
    if not isinstance(file, str):
        return None
    for path in (Path(file), Path(_real(str(Path(file).parent)), Path(file).name)):
        if path.is_relative_to(folder):
            below = path.relative_to(folder)
            python_below = Path(sys.prefix).is_relative_to(folder) and path.is_relative_to(sys.prefix)
            installed = python_below or {"site-packages", "dist-packages"} & set(below.parts)
            return below if path.is_file() and not installed else None
    return None


def late_files(scheme: Path, loaded: Iterable[Path]) -> tuple[set[Path], set[str]]:
    """Files that a loaded scheme and its modules name in imports but have not imported yet: those in methods.

    All paths are relative to the folder of the scheme. The second set has the names, up to the first dot, of all
    modules that methods import, some of which may be loaded.
    """
    folder = scheme.parent
    seen = {Path(scheme.name), *loaded}
    texts, names = list(seen), set[str]()
    late: set[Path] = set()
    in_methods: set[str] = set()
    is_own = cache(lambda first: _would_be_found_in(first, folder))
    while texts:
        path = texts.pop()
        found = set(imported_names(folder / path, path))
        in_methods |= {name.partition(".")[0] for name, in_function in found if in_function}
        for name in {name for name, _ in found} - names:
            names.add(name)
            new = {place for place in _places(name, folder) if is_own(name.partition(".")[0])} - seen
            seen |= new
            late |= new
            texts.extend(new)
    return late, in_methods | {first_name(path) for path in late}


def prepare_late(folder: Path, paths: Iterable[Path]) -> None:
    """Makes sure that methods get modules in these files as they are now, and that the next scheme gets its own."""
    for path in paths:
        # What is loaded now belongs to the calling program.
        _late.update(set(_with_packages(module_name(path))) - sys.modules.keys())
        if path.suffix == ".py":
            # It may be of an earlier text with the same size and time; see `_compiled_anew`.
            with contextlib.suppress(OSError, NotImplementedError):
                Path(importlib.util.cache_from_source(str(folder / path))).unlink()


def _with_packages(name: str) -> list[str]:
    """A module and the packages that contain it.

    >>> _with_packages("helpers.deep.core")
    ['helpers', 'helpers.deep', 'helpers.deep.core']
    """
    parts = name.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def _places(name: str, folder: Path) -> set[Path]:
    """Files in which a module and the packages that contain it are found; a last part `*` stands for any module."""
    parts = name.split(".")
    found: set[Path] = set()
    for depth in range(1, len(parts) + 1):
        package = Path(*parts[:depth])
        stems = [package, package / "__init__"]
        for suffix in importlib.machinery.all_suffixes():
            paths = (stem.with_name(stem.name + suffix) for stem in stems)
            if parts[depth - 1] == "*":
                pattern = (path.as_posix() for path in paths)
                found.update(path.relative_to(folder) for one in pattern for path in folder.glob(one))
            else:
                found.update(path for path in paths if (folder / path).is_file())
    return found


def _would_be_found_in(first: str, folder: Path) -> bool:
    """Whether an import of a module without dots finds it in a folder, rather than in another one that comes first."""
    if first in sys.modules and not _is_replaceable(first, sys.modules[first], folder):
        return str(folder) in _found_in(first, sys.modules[first])
    try:
        # Modules that the program imported from the folder hide nothing.
        spec = importlib.machinery.PathFinder.find_spec(first)
    except (ImportError, ValueError, AttributeError):
        return False
    places = [*(spec.submodule_search_locations or [spec.origin or ""])] if spec is not None else []
    return any(_real(str(Path(place).parent)) == str(folder) for place in places)


def where_found(first: str, folder: Path) -> str | None:
    """Where an import of a module without dots finds it, if not in this folder."""
    if _would_be_found_in(first, folder):
        return None
    module = sys.modules.get(first)
    spec = importlib.machinery.PathFinder.find_spec(first) if module is None else None
    place: str | None = _attributes(module).get("__file__") or (spec.origin if spec is not None else None)
    return place


def _found_in(name: str, module: object) -> set[str]:
    """The folders in which a module, or the package that contains it, was found. A package can have several."""
    attributes = _attributes(module)
    try:
        places = [*(attributes.get("__path__") or ())] or [attributes.get("__file__") or ""]
    except KeyError:
        # The path of a package without a file depends on the package that contains it, which is not loaded any more.
        return set()
    depth = name.count(".")
    parents = (Path(str(place)).parents for place in places)
    return {_real(str(one[depth])) for one in parents if len(one) > depth}


def _attributes(module: object) -> dict[str, Any]:
    """The attributes of a module, without those that it makes when they are read."""
    return vars(module) if isinstance(module, ModuleType) else {}


@lru_cache(maxsize=10_000)
def _real(folder: str) -> str:
    return os.path.realpath(folder)
