"""How to cite a result: Pathloom with its build, and the publication of each scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from pathloom import _core
from pathloom.build import BUILD_DIGITS
from pathloom.report.html import pairs

TITLE, AUTHORS, ADDRESS = "Pathloom", "The Pathloom developers", "https://github.com/pathloom/pathloom"
"""As in CITATION.cff, which wheels do not have."""


def cite_block(versions: Mapping[str, str], schemes: Sequence[str]) -> str:
    """The part of a report that says what to cite, as HTML. `schemes` are specifications."""
    papers = {entry["name"]: str(entry["paper"]) for entry in _core.schemes()}
    named = dict.fromkeys(scheme.partition(":")[0] for scheme in schemes)
    found = [(name, papers[name]) for name in named if name in papers]
    entry = f'<pre class="cite"><code>{escape(bibtex(versions))}</code></pre>'
    return (
        "<h2>Cite this</h2>\n<p>Please cite Pathloom, and the publication of each scheme that you compare. The command "
        f"above and the build make the result repeatable.</p>{entry}{pairs(found) if found else ''}"
    )


def bibtex(versions: Mapping[str, str]) -> str:
    """The entry of Pathloom for BibTeX."""
    build = f",\n  note    = {{build {versions['program'][:BUILD_DIGITS]}}}" if "program" in versions else ""
    return (
        f"@software{{pathloom,\n  author  = {{{{{AUTHORS}}}}},\n  title   = {{{TITLE}}},\n"
        f"  version = {{{versions['pathloom']}}},\n  url     = {{{ADDRESS}}}{build}\n}}"
    )
