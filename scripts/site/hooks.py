"""Hooks of mkdocs for the build of the site: pages made from the code, and links that mkdocs does not convert."""

from __future__ import annotations

import logging
import posixpath
import re
import tempfile
from pathlib import Path

import gallery
import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils.templates import TemplateContext

ROOT = Path(__file__).resolve().parents[2]
HREF = re.compile(r'(?<=href=")(?![a-z]+:|#|/)([^"#?]+)')
"""A relative link in HTML, without its fragment."""
LINK = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]+)(?=[)#])")
log = logging.getLogger("mkdocs.hooks.pathloom")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and drawings that are made from the code."""
    made = {"reference/commands.md": reference.commands_page(), "reference/keys.md": reference.keys_page()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    with tempfile.TemporaryDirectory() as folder:
        for name, drawn in gallery.pictures(Path(folder)).items():
            files.append(File.generated(config, f"{gallery.PLACE}/{name}.svg", content=drawn))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "changelog.md", content=changelog))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links that leave `docs/` to the repository."""
    return LINK.sub(lambda link: outside(link.group(), page, config) or link.group(), markdown)


def on_page_context(context: TemplateContext, page: Page, config: MkDocsConfig, nav: Navigation) -> TemplateContext:
    """Converts the links of notebooks, which mkdocs leaves as they are, as it converts those of other pages."""
    if not page.file.src_uri.endswith(".ipynb") or page.content is None:
        return context
    pages = {one.file.src_uri: one.file for one in nav.pages}

    def converted(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), link.group()))
        known = pages.get(target)
        return (
            known.url_relative_to(page.file)
            if known is not None
            else outside(link.group(), page, config) or link.group()
        )

    page.content = HREF.sub(converted, page.content)
    return context


def outside(link: str, page: Page, config: MkDocsConfig) -> str | None:
    """The address in the repository of a file outside `docs/`; None for a link to a file in it."""
    target = (Path(config.docs_dir) / page.file.src_uri).parent.joinpath(link).resolve()
    if target.is_relative_to(Path(config.docs_dir)):
        return None
    if not target.exists() or not target.is_relative_to(ROOT):
        log.warning("%s links to %s, which does not exist", page.file.src_uri, link)
        return ""
    kind = "tree" if target.is_dir() else "blob"
    return f"{config.repo_url}/{kind}/main/{target.relative_to(ROOT)}"
