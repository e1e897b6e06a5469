"""Outputs whose encoding lacks some of our letters: ASCII and Latin-1 get the nearest ones, and nothing fails."""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata

HANDLER = "pathloom.nearest"
"""Name of the error handler, for `str.encode` and for streams."""

_NEAREST = {
    "±": "+-",
    "−": "-",
    "–": "-",
    "—": "-",
    "µ": "u",
    "μ": "u",
    "×": "x",
    "·": "-",
    "→": "->",
    "←": "<-",
    "≥": ">=",
    "≤": "<=",
    "≈": "~",
    "∞": "inf",
    "«": '"',
    "»": '"',
    "ß": "ss",
}


def nearest(text: str) -> str:
    """The nearest ASCII text.

    >>> nearest("−0.02 ± 10 µs ≥ 1\u202f000, Zürich, 東")
    '-0.02 +- 10 us >= 1 000, Zurich, ?'
    """
    return "".join(one if one.isascii() else _NEAREST.get(one) or _plain(one) for one in text)


def _plain(letter: str) -> str:
    """A letter without its accents, a space of any width as a space; a question mark for all else."""
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode("ascii") or "?"


def _handle(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return nearest(error.object[error.start : error.end]), error.end


def is_text(argument: str) -> bool:
    """Whether an argument of the command line could be decoded; Python keeps what cannot as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in argument)


def as_text(argument: str) -> str:
    r"""What an argument that could not be decoded may have been meant as.

    >>> as_text(b"Z\xc3\xbcrich".decode("ascii", "surrogateescape"))
    'Zürich'
    """
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def as_shown(text: str) -> str:
    """The text as standard output can show it: what is laid out by its width has to be known before it is written."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, HANDLER).decode(encoding)


def make_streams_forgiving() -> None:
    """Lets standard output and standard error write the nearest letters where their encoding lacks some."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


codecs.register_error(HANDLER, _handle)
