"""Renews the texts of docs/reproduction after a change of figures in published/, without running anything again."""

from __future__ import annotations

from pathlib import Path

from pathloom.reproduction.page import renew

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reproduction"

if __name__ == "__main__":
    for name in renew(FOLDER):
        print(name)
