"""Checks the links of the built site: every file and every fragment that a page links to exists.

`mkdocs build --strict` checks links between pages as they are written, but neither those in generated pages, notebooks
and HTML, nor their fragments.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

ATTRIBUTES = {"href", "src"}


class Page(HTMLParser):
    """The links of a page with their lines, and the names that others may link to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[int, str]] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes what an element links to, and its name."""
        for name, value in attrs:
            if name in ATTRIBUTES and value is not None and tag != "base":
                self.links.append((self.getpos()[0], value))
            elif name in ("id", "name") and value:
                self.names.add(value)


def dead_links(site: Path, base: str) -> list[str]:
    """The dead links of a site, one a line. `base` is its address, for links that are absolute; any will do."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    problems = []
    for path, page in pages.items():
        own = urljoin(base, path.relative_to(site).as_posix())
        for line, link in page.links:
            target = urlsplit(urljoin(own, link.strip()))
            if not target.geturl().startswith(base):
                continue
            found = site / unquote(target.path.removeprefix(urlsplit(base).path))
            found = found / "index.html" if found.is_dir() else found
            where = f"{path.relative_to(site)}:{line}: {link}"
            if not found.is_file():
                problems.append(f"{where}: there is no such file")
            elif target.fragment and found in pages and unquote(target.fragment) not in pages[found].names:
                problems.append(f"{where}: {found.relative_to(site)} has no such place")
    return problems


def main(site: str, base: str) -> int:
    """Prints the dead links of the site in a folder."""
    problems = dead_links(Path(site), base)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
