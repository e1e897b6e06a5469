"""The experiments of an artefact, taken from folders with results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathloom.artefact.layout import Entry
from pathloom.errors import bad_input
from pathloom.experiments.results.record import COMPARISON, SWEEP
from pathloom.experiments.results.saved import FOREIGN, Loaded, load
from pathloom.experiments.settings.identity import digest
from pathloom.experiments.settings.input_files import OWN_FABRIC
from pathloom.specs import SIM

_NOT_IN_FILE = ("files", "classes", "precision", "worlds")
"""Settings in a result that are not keys of its file."""


@dataclass(frozen=True)
class Source:
    """An experiment with its result and its input files."""

    entry: Entry
    result: Loaded
    settings: Mapping[str, Any]
    """The keys and values of its file."""
    inputs: Mapping[str, Path]
    """Input files by the names that the settings have for them; the names are relative."""


def read_sources(folders: Sequence[Path]) -> list[Source]:
    """The experiments of results folders. Raises `PathloomError` if one cannot be repeated from files."""
    sources = [_source(folder) for folder in folders]
    names = [source.entry.name for source in sources]
    for place, name in enumerate(names):
        if name in names[:place]:
            first = folders[names.index(name)]
            raise bad_input(f"`{first}` and `{folders[place]}`: both are named `{name}`; rename one of the folders")
    made_by = {(source.result.summary.get("versions") or {}).get("program") for source in sources}
    if len(made_by) > 1:
        raise bad_input(
            f"{', '.join(f'`{folder}`' for folder in folders)}: different builds of Pathloom made them; repeat them "
            "with one build"
        )
    return sources


def _source(folder: Path) -> Source:
    result = load(folder)
    summary, settings = result.summary, result.summary.get("settings", {})
    place = f"`{folder}`"
    if result.kind == FOREIGN:
        raise bad_input(f"{place}: is a result of another simulator; expected the folder of a result of Pathloom")
    if summary.get("complete") is False:
        raise bad_input(f"{place}: the result ended early; finish it with the same command and --resume")
    if settings.get("classes"):
        named = ", ".join(settings["classes"])
        raise bad_input(f"{place}: {named} was given as a Python class; name it as FILE.py:CLASS and run it again")
    if list(settings.get("worlds") or [SIM]) != [SIM]:
        raise bad_input(f"{place}: has runs in the lab, whose figures differ each time; run it in the simulator alone")
    if "versions" not in summary:
        raise bad_input(f"{place}: does not say which version made it; run it again with this version")
    until = settings.get("precision") if result.kind == SWEEP else None
    values = {key: value for key, value in settings.items() if key not in _NOT_IN_FILE and value not in (None, [])}
    entry = Entry(result.path.resolve().name, SWEEP if result.kind == SWEEP else COMPARISON, until)
    return Source(entry, result, values, _inputs(result, settings, place))


def _inputs(result: Loaded, settings: Mapping[str, Any], place: str) -> dict[str, Path]:
    """The input files of a result, each checked to have the content that the runs have read."""
    inputs = {}
    for name, wanted in (settings.get("files") or {}).items():
        own = name == OWN_FABRIC and (result.path / OWN_FABRIC).is_file()
        path = result.path / OWN_FABRIC if own else Path(name)
        # A fabric that was built in Python has the name that its specification begins with.
        known_as = str(settings["fabric"]).partition(":")[0] if own else name
        if Path(known_as).is_absolute() or ".." in Path(known_as).parts:
            raise bad_input(
                f"{place}: names the file `{known_as}`; an artefact holds its files, so run it again in a folder above "
                "the file, and name it from there"
            )
        if not path.is_file():
            raise bad_input(f"{place}: its input file `{path}` is not here; call this in the folder where it ran")
        if digest(str(path)) != wanted:
            raise bad_input(f"{place}: its input file `{path}` has changed since the runs; run it again")
        inputs[known_as] = path
    return inputs


def wall_s(sources: Iterable[Source]) -> float:
    """Time that all runs have taken, in seconds of one core."""
    return sum(
        float(run.get("wall_s") or 0.0)
        for source in sources
        for point in source.result.points
        for row in point["schemes"]
        for run in row["runs"]
    )
