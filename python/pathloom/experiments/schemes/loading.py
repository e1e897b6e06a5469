"""Schemes written in Python: makes an object for every run from a class or from `FILE.py:CLASS:key=value`."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import bad_input, nearest_hint, reason
from pathloom.experiments.schemes.modules import SCHEME, first_name, imports_from, late_files, prepare_late
from pathloom.specs import is_python_spec

Maker = Callable[..., object]


@dataclass(frozen=True)
class PythonScheme:
    """A class or another callable that makes a scheme, and the keys for the call."""

    label: str
    make: Maker
    keys: Mapping[str, Any] = field(default_factory=dict)
    place: Path = Path()
    """The folder of its file, from which it imports modules."""
    names: tuple[str, ...] = ()
    """Files of these modules, relative to the folder."""
    late: frozenset[str] = frozenset()
    """Names of the modules, up to the first dot, that its methods import."""

    @property
    def files(self) -> tuple[str, ...]:
        """Files of the modules that it imports from its own folder, named from the same folder as its own file."""
        return tuple(str(self.place / name) for name in self.names)

    def instance(self, seed: int) -> object:
        """Makes a new scheme for one run. A constructor with a parameter `seed` gets it. Raises `PathloomError`."""
        keys = dict(self.keys)
        if "seed" in _parameters(self.make):
            keys.setdefault("seed", seed)
        try:
            return self.make(**keys)
        except Exception as error:
            raise bad_input(f"scheme `{self.label}`: cannot be made: {_said(error)}") from error


def name_schemes(schemes: Sequence[object]) -> tuple[tuple[str, ...], dict[str, PythonScheme]]:
    """The names of all schemes, and by name the schemes given as classes. Raises `PathloomError`."""
    if isinstance(schemes, str):
        raise bad_input(f"schemes: `{schemes}` is a single text; expected a list, such as {schemes.split(',')}")
    names: list[str] = []
    in_python: dict[str, PythonScheme] = {}
    for scheme in schemes:
        if isinstance(scheme, str):
            names.append(scheme)
            continue
        if not callable(scheme):
            raise bad_input(
                f"schemes: `{scheme!r}` is not a class; expected a name or a class, because every run makes an instance"
            )
        label = _label(scheme)
        if label in in_python or _registered(label):
            raise bad_input(f"schemes: two are named `{label}`; give the class a different attribute `name`")
        in_python[label] = PythonScheme(label, scheme)
        names.append(label)
    return tuple(names), in_python


def load_schemes(specs: Iterable[str]) -> dict[str, PythonScheme]:
    """Loads the schemes in files among these, by their specifications. Raises `PathloomError`."""
    found = {spec: load_scheme(spec) for spec in dict.fromkeys(specs) if is_python_spec(spec)}
    check_distinct(found.values())
    return found


def check_distinct(schemes: Iterable[PythonScheme]) -> None:
    """Raises `PathloomError` if a method of a scheme could import a module of another scheme of the same name."""
    known: dict[Path, tuple[PythonScheme, set[str]]] = {}
    for scheme in schemes:
        folder = scheme.place.resolve()
        firsts = {first_name(Path(name)) for name in scheme.names}
        for other_folder, (other, others) in known.items():
            shared = firsts & others & (scheme.late | other.late)
            if folder != other_folder and shared:
                raise bad_input(
                    f"schemes `{other.label}` and `{scheme.label}`: both have a module `{min(shared)}` in their "
                    "folders, which a method imports; rename one of them"
                )
        _, all_firsts = known.setdefault(folder, (scheme, set()))
        all_firsts |= firsts


def load_scheme(spec: str, modules: Sequence[str] | None = None) -> PythonScheme:
    """Loads the scheme that `FILE.py:CLASS:key=value,key=value` names. Raises `PathloomError`.

    `modules` are the files of its modules if they are known.
    """
    file, _, rest = spec.partition(":")
    name, _, keys = rest.partition(":")
    if "=" in name:
        raise bad_input(f"scheme `{spec}`: the class is missing before `{name}`; expected {file}:CLASS:{name}")
    module, loaded = _load(Path(file), spec)
    found = _class_in(module, name, spec)
    full, place = Path(file).resolve(), Path(file).parent
    # A link to a file elsewhere imports from there.
    place = place if place.resolve() == full.parent else full.parent
    late: set[str] = set()
    if modules is None:
        late_paths, late = late_files(full, loaded)
        paths = loaded | late_paths
    else:
        paths = {Path(os.path.relpath(one, place)) for one in modules}
    prepare_late(full.parent, paths - loaded)
    names = tuple(sorted(map(str, paths)))
    return PythonScheme(spec, found, _read_keys(found, keys, spec), place, names, frozenset(late))


def _load(path: Path, spec: str) -> tuple[types.ModuleType, set[Path]]:
    """Runs a file as a new module. Returns it and the files that it imported, relative to its folder."""
    try:
        source = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise bad_input(f"scheme `{spec}`: cannot read `{path}`: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise bad_input(f"scheme `{spec}`: `{path}` is not UTF-8 text: {error}") from None
    full = path.resolve()
    module = types.ModuleType(f"{SCHEME}{full.stem}")
    module.__file__ = str(full)
    sys.modules[module.__name__] = module
    linecache.checkcache(str(full))
    try:
        with imports_from(full.parent) as loaded:
            exec(compile(source, str(full), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise bad_input(f"scheme `{spec}`: {_place(error, full)}{_said(error)}") from error
    return module, loaded - {Path(full.name)}


def _class_in(module: types.ModuleType, name: str, spec: str) -> Maker:
    classes = {
        known: value
        for known, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and hasattr(value, "handle")
    }
    if name in classes:
        return classes[name]
    file = Path(module.__file__ or "").name
    if not classes:
        raise bad_input(f"scheme `{spec}`: {file} has no class with a method `handle`")
    listed = ", ".join(classes)
    if not name:
        if len(classes) == 1:
            return next(iter(classes.values()))
        raise bad_input(f"scheme `{spec}`: {file} has several classes; name one of {listed}")
    hint = nearest_hint(name, classes)
    raise bad_input(f"scheme `{spec}`: {file} has no class `{name}` with a method `handle`{hint} (it has {listed})")


def _read_keys(make: Maker, text: str, spec: str) -> dict[str, Any]:
    """Keys and values for the constructor, converted to the types of its parameters."""
    parameters = _parameters(make)
    keys: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise bad_input(f"scheme `{spec}`: `{pair}` is not key=value")
        if key not in parameters:
            hint = nearest_hint(key, parameters)
            known = f"it takes {', '.join(parameters)}" if parameters else "it takes none"
            raise bad_input(f"scheme `{spec}`: unknown key `{key}`{hint} ({known})")
        if key in keys:
            raise bad_input(f"scheme `{spec}`: {key} is given twice")
        keys[key] = _value(key, value, parameters[key], spec)
    return keys


def _value(key: str, text: str, kind: type, spec: str) -> bool | int | float | str:
    words = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
    try:
        if kind is bool:
            return words[text.lower()]
        return kind(text) if kind in (int, float) else text
    except (KeyError, ValueError):
        expected = {bool: "on or off", int: "a whole number", float: "a number"}[kind]
        raise bad_input(f"scheme `{spec}`: {key}: `{text}` is not valid; expected {expected}") from None


def _parameters(make: Maker) -> dict[str, type]:
    """Parameters that can be given by name, and their types: the annotation, or the type of the default."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return {}
    try:
        hints = typing.get_type_hints(make.__init__ if inspect.isclass(make) else make)
    except (NameError, TypeError, AttributeError):
        hints = {}
    named = (one for one in parameters.values() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))
    return {one.name: _kind(hints.get(one.name), one.default) for one in named}


def _kind(hint: object, default: object) -> type:
    known = (bool, int, float, str)
    alternatives = [kind for kind in (hint, *typing.get_args(hint)) if kind in known]
    if alternatives:
        return typing.cast("type", alternatives[0])
    return type(default) if type(default) in known else str


def _label(make: Maker) -> str:
    for place in (make, getattr(make, "func", None)):
        for attribute in ("name", "__name__"):
            label = getattr(place, attribute, None)
            if isinstance(label, str) and label:
                return label
    return type(make).__name__


def _registered(label: str) -> bool:
    try:
        _core.scheme_name(label)
    except PathloomError:
        return False
    return True


def _place(error: Exception, file: Path) -> str:
    """The last line of the file in the traceback of an error."""
    lines = [error.lineno] if isinstance(error, SyntaxError) and error.filename == str(file) else []
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == str(file):
            lines.append(step.tb_lineno)
        step = step.tb_next
    return f"line {lines[-1]}: " if lines else ""


def _said(error: Exception) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
