"""What a setting tells about itself, beside its field in `Settings`: for commands, for Python and for errors."""

from __future__ import annotations

from dataclasses import dataclass

WHAT, RUNS, NETWORK, OUTPUT = "What is run", "Runs", "Faults, control and worlds", "Output"
"""Groups of options in the help of commands."""


@dataclass(frozen=True)
class Setting:
    """The text of a setting. Its name, type, default and limits are those of the field."""

    expected: str
    """What a message says was expected."""
    group: str = ""
    """Group of the option in `--help`; empty if commands have no option for the setting."""
    metavar: str = ""
    """Name of the option's value in `--help`; empty for a flag."""
    help: str = ""
    """Text of the option in `--help`."""
    option: str = ""
    """Name of the option, if it is not that of the field."""
    completion: str = ""
    """Kind of the names that a shell completes: fabrics, traffics, schemes or transports."""
