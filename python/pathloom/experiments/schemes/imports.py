"""Names of modules that the text of a Python file imports."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path


def imported_names(file: Path, path: Path) -> Iterator[tuple[str, bool]]:
    """Names of the modules that a file may import, and whether a function does; none if it is no Python text.

    `path` is the path of the file from the folder in which modules are found. The last part of a name may be no module:
    in `from PACKAGE import NAME`, NAME can be anything. It is `*` in `from PACKAGE import *`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        # The import itself reports what is wrong.
        return
    functions = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    )
    in_functions = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        yield from ((name, id(node) in in_functions) for name in _named_in(node, path))


def _named_in(node: ast.AST, path: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = [*_package(path, node.level), *([node.module] if node.module else [])]
        yield from (".".join([*base, alias.name]) for alias in node.names)
    elif isinstance(node, ast.Call):
        yield from _named_by(node, path)


def _named_by(call: ast.Call, path: Path) -> Iterator[str]:
    """The module that `import_module("NAME")` or `__import__("NAME")` imports."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = call.args[0] if call.args else None
    if function not in ("import_module", "__import__") or not isinstance(first, ast.Constant):
        return
    if isinstance(first.value, str) and (name := first.value.lstrip(".")):
        yield ".".join([*_package(path, len(first.value) - len(name)), name])


def _package(path: Path, level: int) -> tuple[str, ...]:
    """The package that a relative import with this number of dots starts from.

    >>> _package(Path("late/deep/core.py"), 2), _package(Path("late/core.py"), 0)
    (('late',), ())
    """
    return path.parents[level - 1].parts if 0 < level <= len(path.parents) else ()
