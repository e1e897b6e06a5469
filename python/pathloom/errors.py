"""What is raised on bad input and when the machine will not do what it should, and what is warned of."""

from __future__ import annotations

from pathloom._core import PathloomError


def bad_input(text: str) -> PathloomError:
    """An error about input, in one line whatever the input was.

    >>> bad_input("schemes `a  b`: expected one line")
    PathloomError('schemes `a b`: expected one line')
    """
    return PathloomError(" ".join(text.split()))


class ToolError(Exception):
    """A tool of the system failed where it should not have; the text is one line."""


class SchemeError(Exception):
    """A scheme written in Python failed, and its runs were stopped; the text is one line."""

    def __init__(self, line: str, traceback: str = "") -> None:
        """`traceback` is that of the scheme's own exception."""
        super().__init__(line)
        self.traceback = traceback
        if traceback:
            self.add_note(traceback.rstrip())


class SchemeWarning(UserWarning):
    """A scheme written in Python failed in a run that was told to keep going; its flows stayed where they were."""
