"""Modules that schemes in Python import from their own folder, and from packages in that folder."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

SCHEME = "pathloom_scheme_file_"
"""Prefix of the names of modules that are made from files of schemes."""

_modules_before = frozenset(sys.modules)
"""Modules that were loaded before any scheme: those of this program and of libraries."""
_added_to_path: set[str] = set()
"""Folders that schemes added to the search path for modules."""


def let_import_from(folder: Path) -> None:
    """Lets schemes import modules from a folder."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        _added_to_path.add(str(folder))


def module_name(path: Path) -> str:
    """The name of the module in a file, whose path begins at the folder in which modules are found.

    >>> module_name(Path("helpers/core.py")), module_name(Path("helpers/__init__.py"))
    ('helpers.core', 'helpers')
    """
    last = inspect.getmodulename(path.name) or path.stem
    return ".".join([*path.parent.parts, *([last] if last != "__init__" else [])])


def module_files(scheme: Path) -> tuple[str, ...]:
    """Paths of the modules of a loaded scheme, which begin with the folder of its file as the caller has named it.

    They are all loaded modules from that folder, and those that only a method imports.
    """
    folder = scheme.resolve().parent
    own = {path for path in _loaded_from(folder) | _named_in(scheme, folder) if (folder / path).is_file()}
    return tuple(sorted(str(scheme.parent / path) for path in own if (folder / path).resolve() != scheme.resolve()))


def _loaded_from(folder: Path) -> set[Path]:
    """Files of the loaded modules that were found in a folder, except schemes and the main program."""
    found = [
        (place, Path(file))
        for name, module in list(sys.modules.items())
        if name != "__main__" and not name.startswith(SCHEME) and (file := getattr(module, "__file__", None))
        for place in _found_in(name, module)
    ]
    same = {place for place in {place for place, _ in found} if place.resolve() == folder}
    return {file.relative_to(place) for place, file in found if place in same and file.is_relative_to(place)}


def _named_in(scheme: Path, folder: Path) -> set[Path]:
    """Files that the text of a scheme or of its modules imports from a folder, in methods too."""
    named: set[Path] = set()
    texts = [Path(scheme.name)]
    while texts:
        path = texts.pop()
        names = {name for name in _imports(folder / path, path) if _would_be_found_in(name, folder)}
        new = {place for name in names for place in _places(name) if (folder / place).is_file()} - named
        named |= new
        texts.extend(new)
    return named


def _imports(file: Path, path: Path) -> Iterator[str]:
    """Names of the modules that a file may import. NAME in `from PACKAGE import NAME` may be a module or not."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        # Such a module fails where it is imported, which tells the user more.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.parents[node.level - 1].parts if 0 < node.level <= len(path.parents) else ()
            base = [*package, *([node.module] if node.module else [])]
            yield from (
                ".".join([*base, *last]) for last in ([], *([alias.name] for alias in node.names)) if base or last
            )


def _places(name: str) -> Iterator[Path]:
    """Files in which a module and the packages that contain it may be found.

    >>> sorted(map(str, _places("late.deep")))
    ['late.py', 'late/__init__.py', 'late/deep.py', 'late/deep/__init__.py']
    """
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        yield Path(*parts[:depth]).with_suffix(".py")
        yield Path(*parts[:depth], "__init__.py")


def _would_be_found_in(name: str, folder: Path) -> bool:
    """Whether an import of a module finds it in a folder, rather than in another one that comes first."""
    first = name.partition(".")[0]
    if first in sys.modules:
        return any(found.resolve() == folder for found in _found_in(first, sys.modules[first]))
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return False
    places = [*(spec.submodule_search_locations or [spec.origin or ""])] if spec is not None else []
    return any(Path(place).parent.resolve() == folder for place in places)


def _found_in(name: str, module: object) -> set[Path]:
    """The folders in which a module, or the package that contains it, was found. A package can have several."""
    attributes = vars(module) if isinstance(module, ModuleType) else {}
    places = [*attributes.get("__path__", ())] or [attributes.get("__file__") or ""]
    depth = name.count(".")
    return {parents[depth] for place in places if len(parents := Path(place).parents) > depth}


def load_all(names: Iterable[str]) -> None:
    """Imports modules now that only a method would import, because their files may be gone by then."""
    for name in names:
        # A module that fails is reported where the scheme imports it.
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def forget(folder: Path) -> None:
    """Makes sure that a scheme in this folder imports its own modules, as they are now.

    Earlier schemes may have imported others of the same name, or the files may have changed since.
    """
    folders = {folder.resolve(), *map(Path, _added_to_path)}
    sys.path[:] = [one for one in sys.path if one not in _added_to_path]
    _added_to_path.clear()
    importlib.invalidate_caches()
    later = [(name, module) for name, module in list(sys.modules.items()) if name not in _modules_before]
    for name in [name for name, module in later if folders & {found.resolve() for found in _found_in(name, module)}]:
        del sys.modules[name]
