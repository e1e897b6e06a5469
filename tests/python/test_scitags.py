"""`pathloom streams scitags`: the handling of announcements on a named pipe."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from assigning import Controller
from conftest import Cli
from pathloom._core import PathloomError
from pathloom.streams import scitags
from pathloom.streams.paths import ControllerAddress
from pathloom.streams.scitags import LINE_END_PAUSE_S, MOST_LINE_BYTES, Announcements, Pipe, parse
from pathloom.streams.with_paths import Broker, PathRequest

OWN, FAR = "127.0.0.1", "192.0.2.9"


class Feed:
    """Announcements, the resulting calls of the controller, and the printed messages."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.said: list[str] = []
        self.now = 0.0
        self.broker = Broker(ControllerAddress("127.0.0.1", controller.place.port), PathRequest(2), self.said.append)
        self.announcements = Announcements(self.broker, self.said.append, clock=lambda: self.now)

    def take(self, *lines: str) -> None:
        for line in lines:
            self.announcements.take(line)

    def claims(self) -> list[tuple[str, int, str, int]]:
        return [(one["src"], one["src_port"], one["dst"], one["dst_port"]) for one in self.controller.claims()]


@pytest.fixture
def feed(controller: Controller) -> Feed:
    """Announcements to a controller that runs."""
    return Feed(controller)


def test_a_connection_is_claimed_by_both_ports_from_the_end_of_this_host(feed: Feed) -> None:
    feed.take(f"start tcp {OWN} 1094 {FAR} 40001 2 3", f"START  TCP {FAR} 40002 {OWN} 1094 2 3 ")
    assert feed.claims() == [(OWN, 1094, FAR, 40001), (OWN, 1094, FAR, 40002)]
    assert len(feed.controller.users) == 1, "one assignment for both"
    feed.take(f"end tcp {OWN} 1094 {FAR} 40001 2 3", f"end tcp {OWN} 1094 {FAR} 40001 2 3")
    assert len(feed.controller.users) == 1, "one connection is left"
    feed.take(f"end tcp {FAR} 40002 {OWN} 1094 2 3")
    assert feed.controller.users == {}
    # The next connection requests paths again.
    feed.take(f"start tcp {OWN} 1094 {FAR} 40003 2 3")
    assert len(feed.claims()) == 3
    assert feed.said == []
    feed.broker.release()


def test_flows_that_cannot_have_a_path_are_ignored(feed: Feed) -> None:
    feed.take(
        f"start udp {OWN} 1094 {FAR} 40001 2 3",
        "start tcp ::1 1094 2001:db8::1 40001 2 3",
        f"start tcp 192.0.2.8 1094 {FAR} 40001 2 3",
        f"start tcp {OWN} 1094 {OWN} 40001 2 3",
        f"end tcp {OWN} 1 {FAR} 40001 2 3",
        "",
    )
    assert feed.controller.calls == []
    assert (feed.announcements.ignored, feed.announcements.bad, feed.said) == (4, 0, [])
    # A token permits claims for all hosts.
    Announcements(feed.broker, print, any_host=True).take("start tcp 127.0.0.2 1094 127.0.0.3 40001 2 3")
    assert feed.claims() == [("127.0.0.2", 1094, "127.0.0.3", 40001)]
    feed.broker.release()


BAD = [
    "start tcp 10.0.0.1 1 10.0.0.2 2 3",
    "start tcp 10.0.0.1 1 10.0.0.2 2 3 4 5",
    "begin tcp 10.0.0.1 1 10.0.0.2 2 3 4",
    "start sctp 10.0.0.1 1 10.0.0.2 2 3 4",
    "start tcp 10.0.0.256 1 10.0.0.2 2 3 4",
    "start tcp storage1 1 10.0.0.2 2 3 4",
    "start tcp 10.0.0.1 1 ::1 2 3 4",
    "start tcp 10.0.0.1 0 10.0.0.2 2 3 4",
    "start tcp 10.0.0.1 70000 10.0.0.2 2 3 4",
    "start tcp 10.0.0.1 -1 10.0.0.2 2 3 4",
    "start tcp 10.0.0.1 ² 10.0.0.2 2 3 4",
    "start tcp 10.0.0.1 1 10.0.0.2 2 atlas 4",
    "start tcp 10.0.0.1 1 10.0.0.2 2 3 99999999999999999999",
    "\x1b[2J\udcff\x00",
]


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_named_and_changes_nothing(feed: Feed, line: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse(line)
    feed.take(line)
    assert feed.controller.calls == [] and feed.announcements.bad == 1
    (said,) = feed.said
    assert "expected start|end tcp|udp SRC SPORT" in said and said.isascii() and said.isprintable()


def test_many_bad_lines_give_few_messages(feed: Feed) -> None:
    feed.take(*["what"] * 1000)
    feed.now = 6.0
    feed.take("what")
    assert len(feed.said) == 2 and "(999 more since the last message)" in feed.said[1]
    assert feed.announcements.bad == 1001


def test_an_unknown_host_is_reported_once_and_others_are_served(feed: Feed) -> None:
    feed.controller.refusal = (404, f"no host of the fabric has the address {FAR}")
    feed.take(*[f"start tcp {OWN} 1094 {FAR} {port} 2 3" for port in range(40_000, 40_010)])
    assert len(feed.said) == 1 and FAR in feed.said[0], feed.said
    assert len(feed.controller.calls) == 1, "the controller is not asked for each connection"
    feed.controller.refusal = None
    feed.take(f"start tcp {OWN} 1094 192.0.2.10 40001 2 3")
    assert feed.claims() == [(OWN, 1094, "192.0.2.10", 40001)]
    feed.broker.release()


def test_a_refused_claim_does_not_block_the_next(feed: Feed) -> None:
    """Both ends may announce a connection: the second one is refused, as it has a path."""
    feed.take(f"start tcp {OWN} 1094 {FAR} 40001 2 3")
    feed.controller.refusal = (409, "source port 1094 has a path of assignment 7")
    feed.take(f"start tcp {OWN} 1094 {FAR} 40002 2 3")
    feed.controller.refusal = None
    feed.take(f"start tcp {OWN} 1094 {FAR} 40003 2 3")
    assert [claim[3] for claim in feed.claims()] == [40001, 40002, 40003]
    assert (feed.broker.claimed, feed.broker.without_path) == (2, 1)
    feed.broker.release()


def test_missing_ends_use_bounded_memory(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scitags, "MOST_FLOWS", 10)
    monkeypatch.setattr(scitags, "MOST_PAIRS", 3)
    for last in range(1, 9):
        feed.take(*[f"start tcp {OWN} 1094 192.0.2.{last} {port} 2 3" for port in range(40_000, 40_004)])
        assert len(feed.controller.users) <= 3
    assert len(feed.announcements._flows) <= 10 and len(feed.announcements._pairs) <= 3
    assert len(feed.claims()) == 32
    feed.broker.release()
    assert feed.controller.users == {}


def write(file: Path, content: bytes) -> None:
    """Opens, writes and closes the pipe, as a program with an announcement does."""
    handle = os.open(file, os.O_WRONLY | os.O_NONBLOCK)
    os.write(handle, content)
    os.close(handle)


def read(pipe: Pipe, for_s: float = 0.05) -> list[str | None]:
    return list(pipe.lines(for_s))


def test_a_pipe_outlives_its_writers_and_its_own_file(tmp_path: Path) -> None:
    file = tmp_path / "announcements"
    pipe = Pipe(file)
    assert stat.S_ISFIFO(file.stat().st_mode) and stat.S_IMODE(file.stat().st_mode) == 0o622
    assert read(pipe) == []
    write(file, b"one\ntwo\n")
    assert read(pipe) == ["one", "two"]
    assert read(pipe) == []
    write(file, b"thr")
    assert read(pipe) == []
    write(file, b"ee\n")
    assert read(pipe) == ["three"], "a line may come in parts"
    write(file, b"no end of line")
    assert read(pipe) == []
    assert read(pipe, LINE_END_PAUSE_S) == ["no end of line"]
    write(file, b"x" * (MOST_LINE_BYTES + 1))
    assert read(pipe) == [None]
    write(file, b"x" * 3000)
    assert read(pipe) == []
    write(file, b"the rest of it\nfour\n\xff\n")
    assert read(pipe) == ["four", "\\xff"]
    file.unlink()
    assert read(pipe) == []
    write(file, b"five\n")
    assert read(pipe) == ["five"], "the pipe was made again"
    with pytest.raises(PathloomError, match="another process reads it"):
        Pipe(file)
    pipe.close()
    assert not file.exists()


def test_an_existing_pipe_is_kept_and_other_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "theirs")
    Pipe(tmp_path / "theirs").close()
    assert (tmp_path / "theirs").exists()
    (tmp_path / "file").write_text("start", encoding="ascii")
    for name, why in (("file", "is not a named pipe"), ("no/where", "cannot be opened: no such file")):
        with pytest.raises(PathloomError, match=why):
            Pipe(tmp_path / name)
    assert (tmp_path / "file").read_text(encoding="ascii") == "start"


def test_the_command_serves_a_pipe_until_it_is_ended(controller: Controller, tmp_path: Path) -> None:
    file, token = tmp_path / "pipe", tmp_path / "token"
    token.write_text("token\n", encoding="ascii")
    where = f"{controller.place.address}:{controller.place.port}"
    options = ["--pipe", file, "--paths", "2", "--controller", where, "--token-file", token, "-v"]
    command = [sys.executable, "-m", "pathloom", "streams", "scitags", *map(str, options)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "reading announcements from" in process.stderr.readline()
        for port in range(40_000, 40_004):
            write(file, f"start tcp {OWN} 1094 {FAR} {port} 2 3\n".encode())
        write(file, b"hello\n")
        # Lines are handled in order, so the message about the last line comes after all other lines were handled.
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        complaint = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
        watchdog.cancel()
    assert process.returncode == 0, complaint
    assert "'hello': has 1 words" in complaint
    assert "4 announcements gave a path, 0 gave none, 0 were ignored, 1 lines were unreadable" in said
    assert said.count("\n") == 1
    assert Counter(claim["dst_port"] for claim in controller.claims()) == Counter(range(40_000, 40_004))
    assert controller.users == {} and not file.exists()


def test_the_command_names_what_is_wrong(cli: Cli) -> None:
    for options, why in (
        (["--pipe", "x", "--paths", "2"], "--controller: is missing"),
        (["--pipe", "x", "--paths", "65", "--controller", "10.0.0.1:1"], "--paths `65`: expected at most 64"),
        (["--pipe", "/dev/null", "--paths", "2", "--controller", "10.0.0.1:1"], "is not a named pipe"),
    ):
        outcome = cli("streams", "scitags", *options)
        assert outcome.code == 2 and why in outcome.err and outcome.err.count("\n") == 1, outcome
