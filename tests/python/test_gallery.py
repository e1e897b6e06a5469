"""The gallery: each picture is made by the code below it, and the pictures stay small."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/site"))

import gallery  # noqa: E402

MOST_BYTES = 2_000_000
"""Largest size of all pictures together."""


def test_every_picture_is_made_by_the_code_below_it(tmp_path: Path) -> None:
    made = gallery.pictures(tmp_path)
    page = gallery.PAGE.read_text(encoding="utf-8")
    assert sorted(made) == sorted(re.findall(rf"\]\({gallery.PLACE}/([\w-]+)\.svg\)", page))
    assert len(made) >= 20
    for name, content in made.items():
        assert ET.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg", name
    assert len(set(made.values())) == len(made), "two pictures are the same"
    assert sum(map(len, made.values())) < MOST_BYTES, {name: len(content) for name, content in made.items()}
