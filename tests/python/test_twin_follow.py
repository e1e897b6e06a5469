"""What was carried out is followed: measured, judged, and taken back if it went worse than predicted."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pathloom._core import PathloomError
from pathloom.cli.app import carry_out
from pathloom.fabrics import Fabric
from pathloom.remote import Controller
from pathloom.twin.ask import Answer, Plan, Row
from pathloom.twin.following import Follower, check_unchanged, metrics_text
from pathloom.twin.ledger import TABLES, Ledger
from pathloom.twin.measures import MEASURES
from pathloom.twin.questions import parse_alternative
from pathloom.twin.watching import Watch

FABRIC = Fabric("fat-tree:k=4,rate=10Mbps")
HEADERS = 1514 / 1448
"""Bytes on the wire for each byte of payload."""


def row(name: int, src: str, dst: str, since_s: float, payload: float, size: int | None = None) -> dict[str, Any]:
    """A flow as the controller lists it."""
    counted = round(payload * HEADERS)
    return {
        "id": str(name),
        "src_host": src,
        "dst_host": dst,
        "since_s": since_s,
        "bytes": counted,
        "size_bytes": size,
    }


class Fake(Controller):
    """A controller whose flows are a function of the time."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.now_s, self.scheme, self.drained = 1000.0, "ecmp", {"c0"}
        self.rate_bps = 1e6
        self.is_down = False
        self.sent: list[str] = []

    def ask(self, method: str, path: str, body: object = None) -> Any:
        if self.is_down:
            raise PathloomError("down")
        name = path.partition("?")[0]
        if method != "GET":
            self.sent.append(f"{method} {path}")
            if path.endswith("/undrain"):
                self.drained.clear()
            return {}
        if name == "/v1/state":
            return {"fabric": FABRIC.spec, "scheme": self.scheme}
        if name == "/v1/flows":
            # A flow of before that goes on, and one that ends after 1 s.
            since_s = self.now_s - 1000.0
            flows = [row(1, "h0", "h8", 990.0, 1e6 + self.rate_bps / 8 * since_s)]
            if since_s < 1.0:
                flows.append(row(2, "h1", "h9", 999.0, 1000 + self.rate_bps / 8 * since_s))
            return {"items": flows, "next": None}
        if name == "/v1/switches":
            tiers = [node for node in FABRIC.nodes if node["tier"] != "host"]
            rows = [{"name": one["name"], "tier": one["tier"], "drained": one["name"] in self.drained} for one in tiers]
            return {"items": rows, "next": None}
        links, names = FABRIC.links, FABRIC.names
        ends = zip(links["source"], links["target"], links["rate_bps"], strict=True)
        rows = [{"from": names[one], "to": names[other], "rate_bps": rate, "state": "up"} for one, other, rate in ends]
        return {"items": rows, "next": None}


@pytest.fixture
def fake() -> Fake:
    return Fake()


def decided(path: Path, fake: Fake, interval: tuple[float, float], measure: str = "worst-pair") -> Ledger:
    """A ledger with a drain that was just carried out, with a prediction for the next 2 s."""
    book = Ledger(path)
    rows = [
        Row(name, {}, [sum(interval) / 2] * 2, interval, None, place == 0, {}, 0.0)
        for place, name in enumerate(["nothing", "drain:c0"])
    ]
    book.add_answer(Answer(Plan(MEASURES[measure], duration="2s"), rows, 2, 1.0), Path("now.plf"), "", 990.0)
    number = book.add_decision(1, "drain:c0", 1000.0, ["POST …"], {"scheme": "ecmp", "drained": []}, back=False)
    watch = Watch(1000.0, 2.0)
    watch.look(fake.pages("/v1/flows"), 1000.0)
    book.store_watch(number, watch.state())
    return book


def follow(book: Ledger, fake: Fake, take_back: bool = False, until_s: float = 12.5) -> list[str]:
    """Looks each half second until nothing is followed any more. Returns what was said."""
    said: list[str] = []
    follower = Follower(book, fake, take_back, said.append, clock=lambda: fake.now_s)
    while fake.now_s - 1000.0 < until_s:
        fake.now_s += 0.5
        if follower.look() == 0:
            break
    return said


@pytest.mark.parametrize(
    ("interval", "end"), [((0.9e6, 1.1e6), "within"), ((1.2e6, 1.4e6), "worse"), ((0.6e6, 0.8e6), "better")]
)
def test_an_outcome_is_noted_by_itself(tmp_path: Path, fake: Fake, interval: tuple[float, float], end: str) -> None:
    book = decided(tmp_path / "l.sqlite", fake, interval)
    said = follow(book, fake)
    assert book.ends() == {end: 1} and book.unfollowed() == []
    assert book.predictions()[1].outcome == pytest.approx(1e6, rel=0.01)
    assert fake.sent == [], "nothing is sent without --take-back"
    assert any("would send: POST /v1/switches/c0/undrain" in text for text in said) == (end == "worse")


def test_what_goes_worse_is_taken_back(tmp_path: Path, fake: Fake) -> None:
    book = decided(tmp_path / "l.sqlite", fake, (2e6, 3e6))
    follow(book, fake, take_back=True)
    assert fake.sent == ["POST /v1/switches/c0/undrain"]
    assert book.taken_back() == 1 and book.last_decision(1, "drain:c0")["back"] == 1  # type: ignore[index]
    text = metrics_text(book, 5.0)
    assert 'pathloom_twin_outside{question="1",alternative="drain:c0"} 1' in text
    assert 'pathloom_twin_decisions_total{end="worse"} 1' in text and "pathloom_twin_taken_back_total 1" in text
    fake.sent.clear()
    assert follow(book, fake, take_back=True) == [] and fake.sent == [], "it is taken back once"


def test_better_than_predicted_is_not_taken_back(tmp_path: Path, fake: Fake) -> None:
    book = decided(tmp_path / "l.sqlite", fake, (1e5, 2e5))
    follow(book, fake, take_back=True)
    assert fake.sent == [] and book.ends() == {"better": 1}


def test_what_others_have_changed_since_is_left_alone(tmp_path: Path, fake: Fake) -> None:
    book = decided(tmp_path / "l.sqlite", fake, (2e6, 3e6))
    fake.drained = {"c1"}
    said = follow(book, fake, take_back=True)
    assert fake.sent == [] and any("c0 is in service by now" in text for text in said)
    with pytest.raises(PathloomError, match="the scheme is ecmp by now, not spt"):
        check_unchanged(fake, parse_alternative("scheme:spt"), {"scheme": "hedera"})


def test_a_restart_goes_on_and_a_long_gap_measures_nothing(tmp_path: Path, fake: Fake) -> None:
    book = decided(tmp_path / "a.sqlite", fake, (0.5e6, 1.5e6))
    follow(book, fake, until_s=2.0)
    assert len(book.unfollowed()) == 1
    fake.now_s += 0.5
    assert follow(Ledger(book.path), fake)[-1].startswith("question 1, drain:c0: within")
    other = Fake()
    book = decided(tmp_path / "b.sqlite", other, (0.5e6, 1.5e6))
    follow(book, other, until_s=2.0)
    other.is_down = True
    assert "does not answer" in follow(book, other, until_s=5.0)[0]
    other.is_down = False
    assert "was not watched for" in follow(book, other)[-1]
    assert book.ends() == {"missed": 1} and book.predictions()[1].outcome is None


def test_what_was_taken_back_by_hand_is_not_measured(tmp_path: Path, fake: Fake) -> None:
    book = decided(tmp_path / "l.sqlite", fake, (2e6, 3e6))
    book.add_decision(1, "drain:c0", 1001.0, [], {"scheme": "ecmp"}, back=True)
    follow(book, fake, take_back=True)
    assert book.ends() == {"withdrawn": 1} and fake.sent == []


def test_fcts_of_small_flows_cannot_be_measured_by_looks(tmp_path: Path, fake: Fake) -> None:
    book = decided(tmp_path / "l.sqlite", fake, (0.1, 0.2), "p99-fct-small")
    assert "cannot be measured by a controller" in follow(book, fake)[-1]


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        # Both flows have a tenth of 10 Mbit/s. One of them goes on for six times the duration.
        ("mean-throughput", 0.1 * HEADERS),
        ("completion", 12.0),
    ],
)
def test_measures_are_those_of_forks(tmp_path: Path, fake: Fake, measure: str, value: float) -> None:
    book = decided(tmp_path / "l.sqlite", fake, (0.0, 100.0), measure)
    follow(book, fake)
    assert book.predictions()[1].outcome == pytest.approx(value, rel=0.02)


def test_ledgers_of_version_1_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as old:
        old.executescript(TABLES + "PRAGMA user_version = 1;")
    assert Ledger(path).unfollowed() == [] and Ledger(path).ends() == {}


def test_the_command_follows_until_all_has_ended(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATHLOOM_TOKEN", "reads")
    monkeypatch.chdir(tmp_path)
    decided(tmp_path / "twin.sqlite", fake, (0.5e6, 1.5e6))

    def passes(seconds: float) -> None:
        fake.now_s += seconds

    monkeypatch.setattr("pathloom.remote.Controller", lambda *_: fake)
    monkeypatch.setattr("pathloom.cli.twin.time.sleep", passes)
    monkeypatch.setattr("pathloom.cli.twin.time.time", lambda: fake.now_s)
    assert carry_out(["twin", "follow", "--take-back"]) == 2
    assert "needs --token-file" in capsys.readouterr().err
    assert carry_out(["twin", "follow", "--metrics", "twin.prom"]) == 0
    assert "drain:c0: within" in capsys.readouterr().out
    assert 'pathloom_twin_decisions_total{end="within"} 1' in (tmp_path / "twin.prom").read_text()
    assert json.loads(json.dumps(Ledger(tmp_path / "twin.sqlite").ends())) == {"within": 1}
