"""Report circles of imports between the files of each Rust crate, and types with `impl` blocks in many files.

`python scripts/cycles.py` compares both with the limits below and fails when one is exceeded, or could be lower.
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

# Crates with a circle above CIRCLE, and types with `impl` blocks in more files than FILES_OF_TYPE. These lists only
# become shorter.
CIRCLES: dict[str, int] = {}
SPREAD = {
    "sim::Simulation": 5,
}


def modules(source: Path) -> dict[str, Path]:
    """The files of a crate by the path of their module."""
    found = {}
    for file in sorted(source.rglob("*.rs")):
        parts = list(file.relative_to(source).with_suffix("").parts)
        if parts[-1] == "mod":
            parts.pop()
        if parts and parts not in (["lib"], ["main"]) and not {"tests", "bin"} & set(parts):
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


def main() -> int:
    """Check every crate, or print the circles of some."""
    wanted, wrong = sys.argv[1:], []
    for name in wanted or sorted(p.parent.name for p in CRATES.glob("*/src")):
        known = modules(CRATES / name / "src")
        texts = {
            m: re.sub(r"//[^\n]*", "", f.read_text()).split("#[cfg(test)]\nmod tests {")[0] for m, f in known.items()
        }
        knots = circles({m: imports(m, text, known) for m, text in texts.items()})
        largest, allowed = len(knots[0]) if knots else 0, CIRCLES.get(name, CIRCLE)
        if largest > allowed or (name in CIRCLES and largest < allowed):
            wrong.append(f"crates/{name}: the largest circle of imports has {largest} files, CIRCLES says {allowed}")
        files = defaultdict(set)
        for module, text in texts.items():
            for kind in re.findall(r"^impl(?:<[^\n{]*?>)? (\w+)(?:<[^\n{]*>)? (?:where[^{]*)?\{", text, re.MULTILINE):
                files[kind].add(module)
        for kind in sorted(
            {k for k, places in files.items() if len(places) > FILES_OF_TYPE}
            | {key.split("::")[1] for key in SPREAD if key.startswith(f"{name}::")}
        ):
            key = f"{name}::{kind}"
            count, allowed = len(files[kind]), SPREAD.get(key, FILES_OF_TYPE)
            if count != allowed:
                wrong.append(f"crates/{name}: `impl {kind}` stands in {count} files, SPREAD says {allowed}")
        if wanted:
            for knot in knots:
                print(f"{name}: {len(knot)} files in a circle: {', '.join(knot)}")
    print("\n".join(wrong) or "scripts/cycles.py: every circle and every type is within its limit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
