"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from pathloom.errors import bad_input

Writer = Callable[[Path], object]
"""Fills a file."""
PLOT_KINDS = ("svg", "pdf", "png")
"""Kinds of files that plots are written as."""
PARTIAL = ".partial-"
"""How the names of files and folders begin that are not whole yet."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path` and puts it in place at once.

    Raises `PathloomError` when that cannot be done; then `path` is as it was before.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=PARTIAL, suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise bad_input(f"cannot write `{path}`: {reason(error)}") from None
    os.close(handle)
    partial = Path(name)
    try:
        write(partial)
        partial.chmod(0o666 & ~_umask())
        _to_disk(partial)
        partial.replace(path)
    except OSError as error:
        raise bad_input(f"cannot write `{path}`: {reason(error)}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


def replace_files(folder: Path, files: Sequence[tuple[str, Writer]], known: Collection[str]) -> list[Path]:
    """Fills a folder with files, given by name and what writes them; the last one comes last. Returns their paths.

    They are written aside and put in place when all are there. Files of the names `known` that are not among them, from
    something that filled the folder before, are removed. Raises `PathloomError` when a file cannot be written; then the
    folder holds what it held.
    """
    try:
        aside = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=folder))
    except OSError as error:
        raise bad_input(f"cannot write to `{folder}`: {reason(error)}") from None
    name = ""
    try:
        for name, write in files:
            write(aside / name)
            _to_disk(aside / name)
        last, names = files[-1][0], [name for name, _ in files]
        # Its presence tells that the folder is whole.
        for name in (last, *(other for other in known if other not in names)):
            (folder / name).unlink(missing_ok=True)
        for name in names:
            (aside / name).replace(folder / name)
    except OSError as error:
        raise bad_input(f"cannot write `{folder / name}`: {reason(error)}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return [folder / name for name in names]


def _to_disk(path: Path) -> None:
    """Waits until the disk has a file: after a power failure it is there whole under its new name, or not at all."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole."""
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file whole."""
    write_whole(path, lambda partial: partial.write_bytes(content))


def check_writable(path: Path) -> None:
    """Raises `PathloomError` when a file cannot be written there; leaves nothing behind."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise bad_input(f"cannot write `{path}`: {reason(error)}") from None


class OutFolder:
    """A folder for results, proved writable before any work is done.

    Folders that it had to make are taken away again by `give_up` when nothing was written into them.
    """

    def __init__(self, path: Path) -> None:
        """Makes the folder; raises `PathloomError` when it is a file or cannot be written."""
        self.path = path
        self._made: list[Path] = []
        # Unlike Path.exists, this takes what may not be looked at for missing; making it then says why.
        missing = [folder for folder in (path, *path.parents) if not os.path.exists(folder)]  # noqa: PTH110
        try:
            for folder in reversed(missing):
                folder.mkdir()
                self._made.append(folder)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            self.give_up()
            no_folder = isinstance(error, NotADirectoryError)
            way_out = "name a folder" if no_folder else "name a folder that can be written"
            raise bad_input(f"--out `{path}`: {reason(error)}; {way_out}") from None

    def give_up(self) -> None:
        """Takes away the folders that were made and are still empty."""
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):
                folder.rmdir()


def reason(error: OSError) -> str:
    """What the system said, in lower case: `no such file or directory`."""
    return (error.strerror or str(error)).lower()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
