"""Errors about bad input, failed tools and failed schemes, and the warning about failed schemes."""

from __future__ import annotations

from collections.abc import Iterable

from pathloom import _core
from pathloom._core import PathloomError


def bad_input(text: str) -> PathloomError:
    """Makes an error about input. Line breaks and repeated spaces in the text become single spaces.

    >>> bad_input("schemes `a  b`: expected one line")
    PathloomError('schemes `a b`: expected one line')
    """
    return PathloomError(" ".join(text.split()))


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: the known one that is spelled most alike, if one is.

    >>> nearest_hint("hedra", ["ecmp", "hedera"])
    '; did you mean `hedera`?'
    """
    near = _core.nearest(name, list(known))
    return f"; did you mean `{near}`?" if near else ""


def reason(error: BaseException) -> str:
    """Returns the message of an exception as one line: of `OSError` the text of the system alone, in lower case.

    >>> reason(FileNotFoundError(2, "No such file or directory", "flows.csv"))
    'no such file or directory'
    """
    # Not every library gives the text apart from number and file name. Only the text alone is in lower case.
    text = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


class ToolError(Exception):
    """A tool of the system or a remote service failed; the text is one line."""


class SchemeError(Exception):
    """A scheme written in Python failed, and its runs were stopped; the text is one line."""

    def __init__(self, line: str, traceback: str = "") -> None:
        """`traceback` is the traceback of the exception that the scheme raised."""
        super().__init__(line)
        self.traceback = traceback
        if traceback:
            self.add_note(traceback.rstrip())


class SchemeWarning(UserWarning):
    """A scheme written in Python failed in a run with `keep_going`; its flows kept their routes."""
