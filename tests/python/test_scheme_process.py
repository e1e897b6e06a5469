"""A scheme in a process of its own gives the same actions as in the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pathloom as pl
from pathloom import _core
from pathloom.experiments.schemes.loading import load_scheme
from pathloom.scheme import Action, Actions, Event, Scheme, View

GREEDY = Path(__file__).parents[2] / "examples" / "greedy.py"
FABRIC = "leaf-spine:spines=3,leaves=3,hosts=2,rate=100Mbps"


def words(name: str) -> str:
    """`FlowArrived` as `flow_arrived`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def as_json(event: Event | Action) -> Any:
    """An event or action as the lines of a controller have it."""
    fields = {key.removesuffix("_ns"): value for key, value in asdict(event).items()}
    if type(event).__name__ == "SetDefaults":
        return {"set_defaults": fields["routes"]}
    return {words(type(event).__name__): json.loads(json.dumps(fields))} if fields else words(type(event).__name__)


@contextmanager
def process(spec: str, fabric: str = FABRIC) -> Iterator[subprocess.Popen[str]]:
    """A process for a scheme, which has got its hello."""
    command = [sys.executable, "-m", "pathloom.scheme_process", spec]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as started:
        graph = json.loads(_core.Fabric.from_spec(fabric).to_node_link())
        say(started, {"protocol": 1, "fabric": graph, "seed": 1})
        yield started
        if started.stdin:
            started.stdin.close()
        started.wait(60)


def say(started: subprocess.Popen[str], line: object) -> None:
    """Writes a line to a process."""
    assert started.stdin
    started.stdin.write(json.dumps(line) + "\n")
    started.stdin.flush()


def hear(started: subprocess.Popen[str]) -> Any:
    """Reads a line of a process."""
    assert started.stdout
    return json.loads(started.stdout.readline())


class Recorded(Scheme):
    """The greedy example, which keeps the lines that a controller would write, and its own actions."""

    lines: ClassVar[list[dict[str, Any]]] = []
    actions: ClassVar[list[list[Any]]] = []

    def __init__(self) -> None:
        self.inner: Any = load_scheme(f"{GREEDY}:Greedy:paths=8").instance(1)
        self.changes = _core.ViewChanges()
        Recorded.lines.clear()
        Recorded.actions.clear()

    def needs(self) -> Any:
        return self.inner.needs()

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        request = {"now": now_ns, "view": json.loads(self.changes.next(view)), "event": as_json(event)}
        actions = list(self.inner.handle(now_ns, event, view))
        Recorded.lines.append({"id": len(Recorded.lines) + 1, "request": request})
        Recorded.actions.append([as_json(action) for action in actions])
        return actions


def test_the_events_of_a_run_lead_to_the_same_actions_over_the_pipe() -> None:
    traffic, faults = "web-search:load=0.5,pattern=random", ["1s:down:s0-l0", "2s:up:s0-l0"]
    names = [node["name"] for node in _core.Fabric.from_spec(FABRIC).nodes()]
    core, leaf = next(name for name in names if name[0] in "cs"), next(name for name in names if name[0] in "el")
    faults = [fault.replace("s0", core).replace("l0", leaf) for fault in faults]
    pl.run(fabric=FABRIC, traffic=traffic, scheme=Recorded, duration="3s", runs=1, faults=faults)
    routes = sum(len(actions) for actions in Recorded.actions)
    events = [line["request"]["event"] for line in Recorded.lines]
    kinds = {next(iter(event)) if isinstance(event, dict) else event for event in events}
    assert kinds >= {"started", "flow_arrived", "flow_finished", "link_changed", "route_confirmed"}
    assert routes > 20
    with process(f"{GREEDY}:Greedy:paths=8") as started:
        greeting = hear(started)
        assert (greeting["protocol"], greeting["needs"]["detection"]) == (1, "label")
        for line, actions in zip(Recorded.lines, Recorded.actions, strict=True):
            say(started, line)
            told = hear(started)
            assert (told["id"], told["reply"]["actions"]) == (line["id"], actions)
    assert started.returncode == 0


def event_line(number: int, event: object) -> dict[str, Any]:
    """A line of a controller without a change in the view, except for the first one."""
    view = {"fresh": True} if number == 1 else {}
    return {"id": number, "request": {"now": number, "view": view, "event": event}}


def test_an_exception_and_what_is_printed_stay_out_of_the_answers(tmp_path: Path) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "from pathloom.scheme import LinkChanged, Measure\n"
        "class Loud:\n"
        "    count = 0\n"
        "    def handle(self, now_ns, event, view):\n"
        "        print('heard', event)\n"
        "        self.count += 1\n"
        "        if isinstance(event, LinkChanged):\n"
        "            raise ValueError('no such link')\n"
        "        return [Measure()]\n"
        "    def poll_timeout(self):\n"
        "        return 7\n"
        "    def save(self):\n"
        "        return {'count': self.count}\n"
        "    def restore(self, state):\n"
        "        self.count = state['count']\n",
        encoding="utf-8",
    )
    with process(str(file)) as started:
        hear(started)
        first = event_line(1, "started")
        first["request"]["restore"] = {"count": 40}
        for line in (first, event_line(2, {"link_changed": {"link": 0, "up": False}}), event_line(3, "timeout")):
            say(started, line)
        replies = [hear(started)["reply"] for _ in range(3)]
        assert started.stdin
        started.stdin.close()
        assert started.stderr
        said = started.stderr.read()
    assert [reply["actions"] for reply in replies] == [["measure"], [], ["measure"]]
    assert [reply["state"] for reply in replies] == [{"count": count} for count in (41, 42, 43)]
    assert replies[0]["timeout"] == 7
    assert "ValueError: no such link" in said
    assert "no such link" in replies[1]["error"]
    assert said.count("heard") == 3


@pytest.mark.parametrize(
    ("first", "words_of_error"),
    [
        ({"protocol": 2}, "version 2"),
        ("x", "no version"),
    ],
)
def test_a_controller_of_another_version_is_refused(first: object, words_of_error: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pathloom.scheme_process", str(GREEDY)],
        input=json.dumps(first) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert words_of_error in done.stderr
    assert len(done.stderr.splitlines()) == 1
