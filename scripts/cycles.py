"""Report knots in Rust crates: circles of imports, imports of higher folders, scattered types, long files.

`python scripts/cycles.py` compares them with the limits below and fails when one is exceeded.
`python scripts/cycles.py CRATE...` prints the files of each circle. The root of a crate (lib.rs, main.rs) and files of
tests do not count. A name that the root only re-exports is not followed. What a module uses of the files of its own
folder is not followed either: these files are parts of it.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

CRATES = Path(__file__).resolve().parent.parent / "crates"
FILES_OF_TYPE = 3
CIRCLE = 4
FILE_LINES = 600
FUNCTION_LINES = 70
FLOORS = {"controller": ("config", "hub", "drivers", "api", "commands", "embed")}
"""Folders of crates whose files import only those of their own folder and of the folders before it."""


def modules(source: Path) -> dict[str, Path]:
    """The files of a crate by the path of their module."""
    found = {}
    for file in sorted(source.rglob("*.rs")):
        parts = list(file.relative_to(source).with_suffix("").parts)
        if parts[-1] == "mod":
            parts.pop()
        is_test = "bin" in parts or any(part.endswith("tests") for part in parts)
        if parts and parts not in (["lib"], ["main"]) and not is_test:
            found["::".join(parts)] = file
    return found


def expand(path: str) -> list[str]:
    """The paths of a `use` with braces: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    head, brace, rest = path.partition("{")
    if not brace:
        return [path.split(" as ", maxsplit=1)[0].strip()]
    items, depth, item = [], 0, ""
    for letter in rest[: rest.rfind("}")]:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            items.append(item)
            item = ""
        else:
            item += letter
    return [head.strip() + path for part in [*items, item] if part.strip() for path in expand(part.strip())]


def imports(module: str, text: str, known: dict[str, Path]) -> set[str]:
    """The modules that the text of a module names."""
    text = re.sub(r"//.*", "", text)  # A link in a comment is no import.
    written = re.findall(r"\buse\s+((?:crate|super|self)::[^;]+);", text)
    inline = re.findall(r"\b((?:crate|super)(?:::\w+)+)", re.sub(r"\buse\s[^;]+;", "", text))
    found = set()
    for path in [name for use in written for name in expand(" ".join(use.split()))] + inline:
        steps = path.split("::")
        place = [] if steps[0] == "crate" else module.split("::")
        while steps and steps[0] in ("crate", "self", "super"):
            if steps.pop(0) == "super" and place:
                place.pop()
        place += steps
        while place and "::".join(place) not in known:
            place.pop()
        found.add("::".join(place))
    return found - {"", module}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that reach each other, the largest first."""
    reach = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for name in graph[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        reach[start] = seen
    sets = {tuple(sorted(n for n in reach[m] if m in reach[n])) for m in graph if m in reach[m]}
    return sorted((list(names) for names in sets), key=lambda names: (-len(names), names))


def climbs(crate: str, graph: dict[str, set[str]]) -> list[str]:
    """Complaints about imports of a folder above, and about files in no folder."""
    floors = FLOORS.get(crate, ())
    level = {floor: number for number, floor in enumerate(floors)}
    wrong = []
    for module, used in sorted(graph.items()):
        own = module.partition("::")[0]
        if floors and own not in level:
            wrong.append(f"crates/{crate}: `{module}` is in none of the folders {', '.join(floors)}; put it into one")
        wrong += [
            f"crates/{crate}: `{module}` imports `{name}`; its folder must stay below that one"
            for name in sorted(used)
            if level.get(name.partition("::")[0], -1) > level.get(own, len(floors))
        ]
    return wrong


def spread(crate: str, texts: dict[str, str]) -> list[str]:
    """Complaints about types with `impl` blocks in too many files. `impl` blocks of traits do not count."""
    files = defaultdict(set)
    for module, text in texts.items():
        for kind in re.findall(r"^impl(?:<[^\n{]*?>)? (\w+)(?:<[^\n{]*>)? (?:where[^{]*)?\{", text, re.MULTILINE):
            files[kind].add(module)
    wide = sorted((kind, len(places)) for kind, places in files.items() if len(places) > FILES_OF_TYPE)
    return [
        f"crates/{crate}: `impl {kind}` stands in {count} files; at most {FILES_OF_TYPE} may have it. Give parts of "
        "its state types of their own"
        for kind, count in wide
    ]


def functions(text: str) -> list[tuple[str, int]]:
    """The functions of a formatted file that have a body of several lines: name, and lines from `fn` to the brace."""
    lines = text.split("\n")
    found = []
    for start, line in enumerate(lines):
        begins = re.match(r"( *)(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe|extern \"C\") )*fn (\w+)", line)
        if begins and not line.endswith((";", "}")):
            # A declaration without a body ends with `);` or `) -> ...;`, a body with a brace.
            end = re.compile(re.escape(begins[1]) + r"(\}|\).*[;}])$")
            after = enumerate(lines[start + 1 :], 2)
            found.append((begins[2], next((count for count, later in after if end.match(later)), 1)))
    return found


def lengths(known: dict[str, Path]) -> list[str]:
    """Complaints about files and functions that are too long."""
    wrong = []
    for file in known.values():
        text = file.read_text()
        if (lines := text.count("\n")) > FILE_LINES:
            wrong.append(f"{file.relative_to(CRATES.parent)}: {lines} lines; at most {FILE_LINES} are allowed")
        wrong += [
            f"{file.relative_to(CRATES.parent)}: `fn {name}` has {count} lines; at most {FUNCTION_LINES} are allowed"
            for name, count in functions(text)
            if count > FUNCTION_LINES
        ]
    return wrong


def main() -> int:
    """Check every crate, or print the circles of some."""
    wanted, wrong = sys.argv[1:], []
    for name in wanted or sorted(p.parent.name for p in CRATES.glob("*/src")):
        known = modules(CRATES / name / "src")
        texts = {
            m: re.sub(r"//[^\n]*", "", f.read_text()).split("#[cfg(test)]\nmod tests {")[0] for m, f in known.items()
        }
        graph = {m: imports(m, text, known) for m, text in texts.items()}
        knots = circles(graph)
        if knots and len(knots[0]) > CIRCLE:
            wrong.append(f"crates/{name}: {len(knots[0])} files in a circle of imports; at most {CIRCLE} may be in one")
        wrong += climbs(name, graph) + spread(name, texts) + lengths(known)
        if wanted:
            for knot in knots:
                print(f"{name}: {len(knot)} files in a circle: {', '.join(knot)}")
    print("\n".join(wrong) or "scripts/cycles.py: every circle, folder, type, file and function is within its limit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
