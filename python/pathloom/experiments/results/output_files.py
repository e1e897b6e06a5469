"""Writes files completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from pathloom.errors import bad_input, reason

Writer = Callable[[Path], object]
"""Writes the content of a file. Raises `OSError` if it cannot be written."""
PLOT_KINDS = ("svg", "pdf", "png")
"""File formats of plots."""
PARTIAL = ".partial-"
"""Prefix of the names of files and folders that are not complete yet."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file in the folder of `path`, and then renames it to `path`.

    A symbolic link stays, and the file that it leads to is replaced. A device or pipe (/dev/null) is written to.
    Raises `PathloomError` if this fails; `path` is then unchanged.
    """
    if _is_device(path):
        return _write_to_device(path, write)
    target = Path(os.path.realpath(path))
    try:
        handle, name = tempfile.mkstemp(prefix=PARTIAL, suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise bad_input(f"cannot write `{path}`: {reason(error)}") from None
    os.close(handle)
    partial = Path(name)
    try:
        write(partial)
        partial.chmod(0o666 & ~_umask())
        _to_disk(partial)
        partial.replace(target)
    except OSError as error:
        raise bad_input(f"cannot write `{path}`: {reason(error)}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


def _is_device(path: Path) -> bool:
    """Whether something is there that is no file and must not be replaced by one."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _write_to_device(path: Path, write: Writer) -> None:
    try:
        with tempfile.TemporaryDirectory() as folder:
            complete = Path(folder) / f"content{path.suffix}"
            write(complete)
            with complete.open("rb") as content, path.open("wb") as device:
                shutil.copyfileobj(content, device)
    except OSError as error:
        raise bad_input(f"cannot write `{path}`: {reason(error)}") from None


def replace_files(folder: Path, files: Sequence[tuple[str, Writer]], known: Collection[str]) -> list[Path]:
    """Fills a folder with files, given by their names and writers, in this order. Returns their paths.

    The files are written to a temporary folder and moved when all are complete. Older files with names in `known` that
    are not replaced are removed. Raises `PathloomError` if a file cannot be written; the folder then keeps its old
    content.
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
        # The presence of the last file tells that the folder is complete.
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
    """Waits until a file is on disk. After a power failure it is then complete under its new name, or missing."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Writes a text file completely or not at all."""
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file completely or not at all."""
    write_atomically(path, lambda partial: partial.write_bytes(content))


def check_writable(path: Path) -> None:
    """Raises `PathloomError` if a file cannot be written at `path`. Leaves no file behind."""
    try:
        if _is_device(path):
            # To open a pipe would wait for its reader.
            if os.access(path, os.W_OK):
                return
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent):
            pass
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise bad_input(f"cannot write `{path}`: {reason(error)}") from None


class OutFolder:
    """A folder for results, checked to be writable before any work is done.

    `remove_if_empty` removes the folders that it made if nothing was written into them.
    """

    def __init__(self, path: Path) -> None:
        """Makes the folder. Raises `PathloomError` if it is a file or cannot be written."""
        self.path = path
        self._made: list[Path] = []
        # Unlike Path.exists, this regards a folder without permission as missing; mkdir then reports why.
        missing = [folder for folder in (path, *path.parents) if not os.path.exists(folder)]  # noqa: PTH110
        try:
            for folder in reversed(missing):
                folder.mkdir()
                self._made.append(folder)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            self.remove_if_empty()
            no_folder = isinstance(error, NotADirectoryError)
            way_out = "name a folder" if no_folder else "name a folder that can be written"
            raise bad_input(f"--out `{path}`: {reason(error)}; {way_out}") from None

    def remove_if_empty(self) -> None:
        """Removes the folders that were made and are still empty."""
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
