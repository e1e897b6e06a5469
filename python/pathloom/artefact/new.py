"""Makes the folder of an artefact."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathloom import _core
from pathloom.api.results import files_of_result
from pathloom.artefact import layout, texts
from pathloom.artefact.layout import Manifest, digests_of
from pathloom.artefact.lock import lock_lines
from pathloom.artefact.sources import Source
from pathloom.artefact.toml import toml_text
from pathloom.errors import bad_input, reason
from pathloom.experiments.results.output_files import PARTIAL


@dataclass(frozen=True)
class About:
    """What an artefact says about itself."""

    title: str
    authors: tuple[str, ...]
    wheel: Path | None = None
    """A wheel of Pathloom that becomes a part of the artefact."""


def check_target(folder: Path, replace: bool) -> None:
    """Raises `PathloomError` if making an artefact in this folder would overwrite files.

    With `replace`, an artefact whose files are as they were made is replaced; other files in its folder stay.
    """
    try:
        found = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise bad_input(f"`{folder}`: {reason(error)}; name another folder") from None
    if not found:
        return
    if layout.MANIFEST not in found:
        raise bad_input(f"`{folder}`: has {', '.join(found[:3])}{' …' if len(found) > 3 else ''}; name a new folder")
    if not replace:
        raise bad_input(f"`{folder}`: is an artefact; --replace makes it again, or name a new folder")
    manifest = Manifest.read(folder)
    edited = [name for name in manifest.changed(folder) if (folder / name).exists()]
    if edited:
        raise bad_input(
            f"`{folder}`: {', '.join(edited[:3])} changed since the artefact was made; move it, or name a new folder"
        )


def check_wheel(wheel: Path) -> None:
    """Raises `PathloomError` if a file is not a wheel of this version of Pathloom."""
    beginning = f"pathloom-{_core.__version__}-"
    if not wheel.is_file() or not wheel.name.startswith(beginning) or wheel.suffix != ".whl":
        raise bad_input(f"--wheel `{wheel}`: expected a file {beginning}….whl, which `make wheel` builds")


def make(folder: Path, sources: Sequence[Source], about: About) -> Manifest:
    """Makes an artefact; the caller has called `check_target`. Returns its manifest.

    Raises `PathloomError` if a file cannot be read or written; the folder then keeps its content.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=folder.parent))
    except OSError as error:
        raise bad_input(f"cannot write `{folder}`: {reason(error)}") from None
    try:
        manifest = _fill(aside, sources, about)
        _move(aside, folder, manifest)
    except OSError as error:
        raise bad_input(f"cannot write `{folder}`: {reason(error)}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return manifest


def _fill(folder: Path, sources: Sequence[Source], about: About) -> Manifest:
    for source in sources:
        name = source.entry.name
        settings = folder / layout.EXPERIMENTS / name
        settings.mkdir(parents=True)
        (settings / layout.SETTINGS).write_text(toml_text(source.settings), encoding="utf-8")
        for known_as, path in source.inputs.items():
            (settings / known_as).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, settings / known_as)
        expected = folder / layout.EXPECTED / name
        expected.mkdir(parents=True)
        for path in files_of_result(source.result.path):
            shutil.copyfile(path, expected / path.name)
    versions = dict(sources[0].result.summary["versions"])
    wheel = about.wheel.name if about.wheel is not None else None
    if about.wheel is not None:
        shutil.copyfile(about.wheel, folder / about.wheel.name)
    for name, text in (
        (layout.LOCK, "\n".join(lock_lines(wheel)) + "\n"),
        (layout.MAKEFILE, texts.MAKE_TEXT),
        (layout.README, texts.readme_text(about.title, versions, sources, wheel)),
        (layout.CITATION, texts.citation_text(about.title, about.authors, versions)),
        (layout.ZENODO, texts.zenodo_text(about.title, about.authors)),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    entries = tuple(source.entry for source in sources)
    manifest = Manifest(about.title, about.authors, versions, entries, digests_of(folder))
    (folder / layout.MANIFEST).write_text(manifest.text(), encoding="utf-8")
    return manifest


def _move(made: Path, folder: Path, manifest: Manifest) -> None:
    """Moves the files of an artefact into its folder, the manifest last. Files of an older artefact are removed."""
    old = Manifest.read(folder).files if (folder / layout.MANIFEST).exists() else {}
    # A folder without a manifest is not taken for an artefact.
    (folder / layout.MANIFEST).unlink(missing_ok=True)
    for name in old:
        (folder / name).unlink(missing_ok=True)
    for name in (*manifest.files, layout.MANIFEST):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).replace(folder / name)
