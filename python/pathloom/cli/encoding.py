"""Output in encodings that lack characters, such as ASCII and Latin-1: the nearest characters replace these."""

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
    """Returns the text in ASCII: the nearest characters replace all others.

    >>> nearest("−0.02 ± 10 µs ≥ 1\u202f000, Zürich, 東")
    '-0.02 +- 10 us >= 1 000, Zurich, ?'
    """
    return "".join(one if one.isascii() else _NEAREST.get(one) or _plain(one) for one in text)


def _plain(letter: str) -> str:
    """Returns a letter without its accents, a space for a space of any width, and `?` for other characters."""
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode("ascii") or "?"


def _handle(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return nearest(error.object[error.start : error.end]), error.end


def is_text(argument: str) -> bool:
    """Returns whether an argument could be decoded. Python represents undecodable bytes by lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in argument)


def as_text(argument: str) -> str:
    r"""Returns an undecodable argument as it reads in UTF-8.

    >>> as_text(b"Z\xc3\xbcrich".decode("ascii", "surrogateescape"))
    'Zürich'
    """
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def as_shown(text: str) -> str:
    """Returns the text as standard output prints it. The layout of tables needs it, since the width may differ."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, HANDLER).decode(encoding)


def make_streams_forgiving() -> None:
    """Makes standard output and standard error write the nearest character for one that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


codecs.register_error(HANDLER, _handle)
