"""Writes tables as Parquet."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl

_OS_ERROR = re.compile(r"os error (\d+)")


def parquet_writer(frame: pl.DataFrame) -> Callable[[Path], None]:
    """Returns a function that writes a table as Parquet. It raises `OSError`, unlike Polars, if a disk is full."""

    def write(path: Path) -> None:
        try:
            frame.write_parquet(path)
        except pl.exceptions.PolarsError as error:
            found = _OS_ERROR.search(str(error))
            number = int(found[1]) if found is not None else errno.EIO
            raise OSError(number, os.strerror(number)) from error

    return write
