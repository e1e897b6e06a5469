"""Modules of schemes in Python: each scheme has its own, as they are when it is loaded, and a run depends on them."""

from __future__ import annotations

import os
import py_compile
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pathloom._core import PathloomError
from pathloom.experiments.schemes.loading import PythonScheme, load_scheme, load_schemes

SCHEME = """
{top}
class Own:
    def handle(self, now_ns, event, view):
        return []
    def value(self):
        {late}
        return {value}
"""


@pytest.fixture(autouse=True)
def imports_as_before() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def loaded(folder: Path, top: str = "", late: str = "pass", value: str = "None") -> PythonScheme:
    write(folder, {"own.py": SCHEME.format(top=top, late=late, value=value)})
    return load_scheme(f"{folder}/own.py:Own")


def value_of(scheme: PythonScheme) -> Any:
    instance: Any = scheme.instance(seed=1)
    return instance.value()


CASES = {
    "star import of a package": (
        {"pkg/__init__.py": "__all__ = ['sub']\n", "pkg/sub.py": "", "late.py": "from pkg import *\n"},
        ("", "import late"),
        ["late.py", "pkg/__init__.py", "pkg/sub.py"],
    ),
    "method of a module with a computed name": (
        {"plug.py": "def f():\n    import late\n", "late.py": ""},
        ("import importlib; plug = importlib.import_module('pl' + 'ug')", "pass"),
        ["late.py", "plug.py"],
    ),
    "package that extends its path": (
        {
            "pkg/__init__.py": "import os\n__path__.append(os.path.join(__path__[0], 'plugins'))\n",
            "pkg/plugins/foo.py": "",
        },
        ("import pkg.foo", "pass"),
        ["pkg/__init__.py", "pkg/plugins/foo.py"],
    ),
    "names in calls": (
        {"one.py": "", "two.py": ""},
        ("import importlib", "importlib.import_module('one'); __import__('two')"),
        ["one.py", "two.py"],
    ),
    "folder that is added to the path": (
        {"lib/deep.py": ""},
        ("import os, sys; sys.path.insert(0, os.path.dirname(__file__) + '/lib'); import deep", "pass"),
        ["lib/deep.py"],
    ),
    "relative imports in a cycle": (
        {"a/__init__.py": "", "a/b/__init__.py": "", "a/b/c.py": "from .. import d\n", "a/d.py": "from .b import c\n"},
        ("", "import a.b.c as e"),
        ["a/__init__.py", "a/b/__init__.py", "a/b/c.py", "a/d.py"],
    ),
    "package without a file in a package": (
        {"p/__init__.py": "", "p/q/core.py": "from .. import r\n", "p/r.py": ""},
        ("", "import p.q.core"),
        ["p/__init__.py", "p/q/core.py", "p/r.py"],
    ),
    "module with a wrong file": (
        {},
        ("import sys, types\nm = types.ModuleType('m'); m.__file__ = 'x.py'; sys.modules['m'] = m", "pass"),
        [],
    ),
    "module of Python of the same name": ({"json.py": "", "time.py": ""}, ("", "import json, time"), []),
    "module that cannot be parsed": ({"bad.py": "x=" + "-" * 100_000 + "1"}, ("", "import bad"), ["bad.py"]),
    "names that only types need": (
        {"tool.py": "import sys\nsys.exit(1)\n"},
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tool", "pass"),
        ["tool.py"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_modules_of_a_scheme_are_found(tmp_path: Path, case: str) -> None:
    files, (top, late), expected = CASES[case]
    write(tmp_path, files)
    scheme = loaded(tmp_path, top, late)
    assert list(scheme.names) == expected
    assert scheme.files == tuple(f"{tmp_path}/{name}" for name in expected)
    # A second load, after a method has imported its modules, finds the same.
    if case != "module that cannot be parsed":
        value_of(scheme)
    assert loaded(tmp_path, top, late).names == scheme.names


def test_a_compiled_module_counts(tmp_path: Path) -> None:
    write(tmp_path, {"late.py": "VALUE = 1\n"})
    py_compile.compile(str(tmp_path / "late.py"), cfile=str(tmp_path / "late.pyc"))
    (tmp_path / "late.py").unlink()
    assert loaded(tmp_path, late="import late").names == ("late.pyc",)


@pytest.mark.parametrize("where", ["top", "late"])
def test_modules_are_read_again_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    words = {where: "import helper_again", "value": "helper_again.VALUE"}
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for value in (1, 2):
        write(tmp_path, {"helper_again.py": f"VALUE = {value}\n"})
        # Python uses compiled files as long as the size and this second are the same.
        os.utime(tmp_path / "helper_again.py", (1, 1))
        assert value_of(loaded(tmp_path, **words)) == value


def test_modules_of_the_methods_of_two_schemes_are_read_again(tmp_path: Path) -> None:
    write(tmp_path, {"other.py": SCHEME.format(top="", late="pass", value="None")})
    for value in (1, 2):
        write(tmp_path, {"late_again.py": f"VALUE = {value}\n"})
        first = loaded(tmp_path, late="import late_again", value="late_again.VALUE")
        load_scheme(f"{tmp_path}/other.py:Own")
        assert value_of(first) == value


def test_a_stale_compiled_module_is_not_used(tmp_path: Path) -> None:
    for value in (1, 2):
        write(tmp_path, {"stale.py": f"VALUE = {value}\n"})
        os.utime(tmp_path / "stale.py", (1, 1))
        if value == 1:
            py_compile.compile(str(tmp_path / "stale.py"))
    assert value_of(loaded(tmp_path, top="import stale", value="stale.VALUE")) == 2


def test_schemes_in_two_folders_have_their_own_modules(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        write(tmp_path / name, {"own.py": SCHEME.format(top="import twin", late="pass", value="twin.VALUE")})
        write(tmp_path / name, {"twin.py": f"VALUE = {value}\n"})
    schemes = load_schemes([f"{tmp_path}/{name}/own.py:Own" for name in "ab"])
    assert [value_of(scheme) for scheme in schemes.values()] == [1, 2]
    assert [scheme.files for scheme in schemes.values()] == [(f"{tmp_path}/{name}/twin.py",) for name in "ab"]
    # All methods of a process share the loaded modules.
    for top in ("", "import twin"):
        write(tmp_path / "b", {"own.py": SCHEME.format(top=top, late="import twin", value="twin.VALUE")})
        with pytest.raises(PathloomError, match="both have a module `twin` in their folders, which a method imports"):
            load_schemes(schemes)


def test_modules_of_other_schemes_and_of_the_caller_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    write(
        tmp_path,
        {
            "of_caller.py": "VALUE = 1\n",
            "of_other.py": "",
            "other.py": SCHEME.format(top="import of_other", late="pass", value="1"),
        },
    )
    import of_caller  # type: ignore[import-not-found]

    load_scheme(f"{tmp_path}/other.py:Own")
    assert loaded(tmp_path).names == ()
    write(tmp_path, {"of_caller.py": "VALUE = 20\n"})
    scheme = loaded(tmp_path, top="import of_caller", value="of_caller.VALUE")
    assert (scheme.names, value_of(scheme)) == (("of_caller.py",), 20)
    for late in ("import of_caller", "pass"):
        loaded(tmp_path, late=late)
        assert (sys.modules["of_caller"], of_caller.VALUE) == (of_caller, 1), "the caller keeps its module"


def test_libraries_do_not_count_but_modules_below_the_folder_of_python_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {".venv/lib/site-packages/some_library.py": "", "env/some_part.py": "", "src/beside.py": ""})
    paths = [str(tmp_path / "env"), str(tmp_path / ".venv/lib/site-packages")]
    monkeypatch.setattr(sys, "path", [*sys.path, *paths])
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    assert loaded(tmp_path, top="import some_library, some_part").names == ()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert loaded(tmp_path / "src", top="import beside").names == ("beside.py",)


def test_a_scheme_may_be_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real", {"late.py": "VALUE = 1\n"})
    loaded(tmp_path / "real", late="import late", value="late.VALUE")
    write(tmp_path / "link", {"late.py": "VALUE = 2\n"})
    (tmp_path / "link/own.py").symlink_to("../real/own.py")
    scheme = load_scheme(f"{tmp_path}/link/own.py:Own")
    assert (scheme.files, value_of(scheme)) == ((f"{tmp_path}/real/late.py",), 1)


def test_odd_modules_of_the_process_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ImportError(name)

    without_path = ModuleType("without_path")
    without_path.__path__ = None  # type: ignore[assignment]
    for module in (Lazy("lazy"), without_path):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "no_module", object())
    write(tmp_path, {"late.py": ""})
    assert loaded(tmp_path, late="import late, lazy, without_path, no_module").names == ("late.py",)


def test_a_scheme_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    write(tmp_path, {"own.py": "\ufeff" + SCHEME.format(top="", late="pass", value="1")})
    assert value_of(load_scheme(f"{tmp_path}/own.py:Own")) == 1


def test_hundreds_of_modules_are_found_within_seconds(tmp_path: Path) -> None:
    imports = "\n    ".join(f"from big.m{other} import a, b" for other in range(40))
    write(tmp_path, {f"big/m{number}.py": f"def f():\n    {imports}\n" for number in range(500)})
    begun_s = time.process_time()
    scheme = loaded(tmp_path, late="\n        ".join(f"import big.m{number}" for number in range(500)))
    assert len(scheme.names) == 500
    assert time.process_time() - begun_s < 5, "this takes a second on a slow machine"
