"""The options of commands that are fields of `Settings`: their names, types and texts come from the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Annotated, Any

import typer
from annotated_types import Ge, Le

from pathloom.cli import completion
from pathloom.errors import bad_input
from pathloom.experiments.settings.files import split_lists
from pathloom.experiments.settings.model import Settings, command_settings, option_name
from pathloom.experiments.settings.setting import Setting

Verb = Callable[..., int]
GIVEN = "given"
"""Name of the parameter of a command that receives the settings which were given, by name."""


def takes_settings(
    leave_out: Collection[str] = (), texts: Mapping[str, Setting] | None = None
) -> Callable[[Verb], Verb]:
    """Gives a command an option for each setting; the command receives those that were given as a dict, `given`.

    `leave_out` names settings without an option, and `texts` replaces what settings tell about themselves.
    """
    shown = {name: one for name, one in {**command_settings(), **(texts or {})}.items() if name not in leave_out}

    def decorate(verb: Verb) -> Verb:
        own = inspect.signature(verb, eval_str=True)
        rest = [parameter for name, parameter in own.parameters.items() if name != GIVEN]
        settings = {_parameter_name(name, one): name for name, one in shown.items()}

        @wraps(verb)
        def command(**values: Any) -> int:
            found = {name: values.pop(parameter) for parameter, name in settings.items()}
            return verb(given=_given(found), **values)

        keyword_only = (parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest)
        parameters = [*(_parameter(name, one) for name, one in shown.items()), *keyword_only]
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _parameter_name(name: str, about: Setting) -> str:
    return about.option or name


def _parameter(name: str, about: Setting) -> inspect.Parameter:
    """The parameter of a command for a setting, as typer reads it."""
    default: bool | None = None
    taken: Any = str | None
    if Settings.model_fields[name].annotation is bool:
        taken, default = bool, False
    elif about.option and name == "faults":
        taken = list[str] | None
    option = typer.Option(
        f"--{_parameter_name(name, about).replace('_', '-')}",
        metavar=about.metavar or None,
        help=about.help,
        autocompletion=getattr(completion, about.completion) if about.completion else None,
        rich_help_panel=about.group,
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(_parameter_name(name, about), kind, default=default, annotation=Annotated[taken, option])


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options that were given, in the types of the settings. Raises `PathloomError`."""
    found = {name: value for name, value in values.items() if value not in (None, False, [])}
    whole = {name for name in found if Settings.model_fields[name].annotation is int}
    return split_lists({name: _number(name, value) if name in whole else value for name, value in found.items()})


def _number(name: str, text: str) -> int:
    limits = Settings.model_fields[name].metadata
    least = next(int(one.ge) for one in limits if isinstance(one, Ge))  # type: ignore[call-overload]
    most = next(int(one.le) for one in limits if isinstance(one, Le))  # type: ignore[call-overload]
    return whole_number(option_name(name), text, least, most)


def whole_number(option: str, text: str, least: int, most: int) -> int:
    """Returns the whole number of an option. Raises `PathloomError` if it is none, or out of range."""
    if text.isascii() and text.isdecimal() and len(text) <= 16 and least <= int(text) <= most:
        return int(text)
    raise bad_input(f"{option} `{text}`: expected a whole number from {least} to {most}")
