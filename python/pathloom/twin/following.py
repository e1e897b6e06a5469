"""Follows what was carried out: notes what came of it, and takes it back if it went worse than predicted.

All that must survive a restart is in the ledger: decisions, the watch of each, and how each ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import ToolError, bad_input
from pathloom.remote import Controller
from pathloom.twin.apply import apply_to_controller, changes_scheme, steps_of
from pathloom.twin.ledger import Ledger, Prediction
from pathloom.twin.measures import MEASURES
from pathloom.twin.questions import Alternative, parse_alternative, scheme_after
from pathloom.twin.watching import MEASURABLE, Watch, access_rates

LOOK_S = 0.5
"""Time between two looks at the flows."""
STORE_S = 1.0
"""Time between two stored states of a watch."""

WITHIN, BETTER, WORSE, MISSED, WITHDRAWN = "within", "better", "worse", "missed", "withdrawn"
ENDS = (WITHIN, BETTER, WORSE, MISSED, WITHDRAWN)
"""How a decision can end: in its interval, outside of it, not measured, or taken back by somebody before."""


@dataclass(frozen=True)
class Judgement:
    """What came of a decision."""

    end: str
    value: float | None = None
    why: str = ""


def judge(prediction: Prediction, watch: Watch, measure: str, access_bps: Mapping[str, float]) -> Judgement:
    """Compares what was measured with the interval of the prediction."""
    if measure not in MEASURABLE:
        return Judgement(MISSED, why=f"{measure} cannot be measured by a controller, only {', '.join(MEASURABLE)}")
    if (why := watch.missed()) is not None:
        return Judgement(MISSED, why=why)
    value = MEASURES[measure].of(watch.outcome(access_bps), watch.duration_s)
    if value is None:
        return Judgement(MISSED, why=f"no flow counts for {measure}")
    if prediction.low is None or prediction.high is None:
        return Judgement(MISSED, value, "the prediction has no interval; ask with --runs 2 or more")
    if prediction.low <= value <= prediction.high:
        return Judgement(WITHIN, value)
    return Judgement(BETTER if (value > prediction.high) == prediction.more_is_better else WORSE, value)


def check_unchanged(controller: Controller, alternative: Alternative, before: Mapping[str, Any]) -> None:
    """Raises `PathloomError` unless the fabric still is as the decision left it: others may have changed it since."""
    name = alternative.name
    if changes_scheme(alternative):
        wanted, found = scheme_after(before["scheme"], alternative), controller.ask("GET", "/v1/state")["scheme"]
        if found != wanted:
            raise bad_input(f"take back `{name}`: the scheme is {found} by now, not {wanted}; nothing is taken back")
    drained = {row["name"] for row in controller.pages("/v1/switches") if row["drained"]}
    for part in alternative.parts:
        if part.kind == "drain" and part.value not in drained:
            raise bad_input(f"take back `{name}`: {part.value} is in service by now; nothing is taken back")


class Follower:
    """Follows the decisions of a ledger."""

    def __init__(
        self,
        book: Ledger,
        controller: Controller,
        take_back: bool,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        """Without `take_back`, it says what it would take back, and sends nothing."""
        self._book, self._controller, self._take_back = book, controller, take_back
        self._say, self._clock = say, clock
        self._watches: dict[int, Watch] = {}
        self._stored_s = 0.0

    def look(self) -> int:
        """Takes one look at the flows, and ends what is over. Returns how many decisions are still followed."""
        pending = self._book.unfollowed()
        if not pending:
            self._watches.clear()
            return 0
        try:
            rows = list(self._controller.pages("/v1/flows"))
        except (PathloomError, ToolError) as error:
            # The gap counts: if it is long, nothing is measured.
            self._say(f"the controller does not answer: {error}")
            return len(pending)
        now_s = self._clock()
        store = now_s - self._stored_s >= STORE_S
        left = 0
        for decision in pending:
            watch = self._watch_of(decision)
            watch.look(rows, now_s)
            if self._is_withdrawn(decision):
                self._end(decision, Judgement(WITHDRAWN))
            elif watch.is_over(now_s):
                self._judge(decision, watch)
            else:
                left += 1
                if store:
                    self._book.store_watch(decision["id"], watch.state())
        if store:
            self._stored_s = now_s
        return left

    def _watch_of(self, decision: Mapping[str, Any]) -> Watch:
        number = decision["id"]
        if number not in self._watches:
            duration_s = _core.parse_time_s(decision["duration"])
            self._watches[number] = Watch(decision["at_s"], duration_s, decision["watch"])
        return self._watches[number]

    def _is_withdrawn(self, decision: Mapping[str, Any]) -> bool:
        last = self._book.last_decision(decision["question"], decision["name"])
        return last is not None and last["id"] != decision["id"]

    def _judge(self, decision: Mapping[str, Any], watch: Watch) -> None:
        number, name = decision["question"], decision["name"]
        prediction = next(one for one in self._book.predictions() if one.question == number and one.name == name)
        hosts = {flow[end] for flow in watch.flows.values() for end in ("src", "dst")}
        access_bps = access_rates(self._controller.pages("/v1/links"), hosts)
        found = judge(prediction, watch, decision["measure"], access_bps)
        if found.value is not None:
            self._book.add_outcome(number, name, found.value, self._clock())
        self._end(decision, found)
        if found.end == WORSE:
            self._back(decision)

    def _end(self, decision: Mapping[str, Any], found: Judgement) -> None:
        self._book.end_watch(decision["id"], found.end, found.why, self._clock())
        self._watches.pop(decision["id"], None)
        value = "" if found.value is None else f" with {found.value:.6g}"
        why = f": {found.why}" if found.why else ""
        self._say(f"question {decision['question']}, {decision['name']}: {found.end}{value}{why}")

    def _back(self, decision: Mapping[str, Any]) -> None:
        number, name = decision["question"], decision["name"]
        alternative, before = parse_alternative(name), decision["before"]
        steps = steps_of(alternative, before["scheme"], back=True)
        texts = [step.text for step in steps]
        if not self._take_back:
            self._say(f"--take-back would send: {'; '.join(texts)}")
            return
        try:
            check_unchanged(self._controller, alternative, before)
            apply_to_controller(self._controller, steps)
        except (PathloomError, ToolError) as error:
            self._say(str(error))
            return
        self._book.add_decision(number, name, self._clock(), texts, before, back=True)
        self._say(f"taken back: {'; '.join(texts)}")


def metrics_text(book: Ledger, now_s: float) -> str:
    """The metrics of a ledger in the text format of Prometheus."""
    ends, last = book.ends(), book.last_end()
    followed = len(book.unfollowed())
    lines = [
        "# HELP pathloom_twin_decisions_total What was carried out, by how it ended.",
        "# TYPE pathloom_twin_decisions_total counter",
        *(f'pathloom_twin_decisions_total{{end="{end}"}} {ends.get(end, 0)}' for end in ENDS),
        "# HELP pathloom_twin_taken_back_total What was taken back.",
        "# TYPE pathloom_twin_taken_back_total counter",
        f"pathloom_twin_taken_back_total {book.taken_back()}",
        "# HELP pathloom_twin_followed Decisions that are being followed.",
        "# TYPE pathloom_twin_followed gauge",
        f"pathloom_twin_followed {followed}",
        "# HELP pathloom_twin_looked_at_seconds When the flows were looked at last, in seconds since 1970.",
        "# TYPE pathloom_twin_looked_at_seconds gauge",
        f"pathloom_twin_looked_at_seconds {now_s:.3f}",
    ]
    if last is not None:
        name = str(last["name"]).replace("\\", "\\\\").replace('"', '\\"')
        outside = int(last["end"] in (BETTER, WORSE))
        lines += [
            "# HELP pathloom_twin_outside Whether the last outcome left the interval of its prediction.",
            "# TYPE pathloom_twin_outside gauge",
            f'pathloom_twin_outside{{question="{last["question"]}",alternative="{name}"}} {outside}',
        ]
    return "\n".join(lines) + "\n"
