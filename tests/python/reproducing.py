"""A small figure that tests reproduce."""

from __future__ import annotations

from typing import Any

from pathloom.reproduction import measure
from pathloom.reproduction.definitions import PUBLISHED as WHOLE
from pathloom.reproduction.definitions import Figure, Form
from pathloom.reproduction.runs import RunCache

TINY: dict[str, Any] = {
    "id": "ofpt/tiny",
    "title": "tiny",
    "source": "nowhere",
    "names": {"spt": "TCP"},
    "setup": {
        "fabric": "dumbbell:hosts=2,rate=100Mbps",
        "traffic": "hadoop:load={x}",
        "schemes": ["spt", "ecmp", "unbuilt"],
        "duration": "300ms",
        "runs": 2,
    },
    "x": [0.2, 0.5],
    "plot": {"kind": "lines", "metric": "fct_mean", "unit": "s", "x": "load", "y": "mean FCT (s)"},
    "rows": [
        {"label": "TCP", "unit": "s", "scheme": "spt", "metric": "fct_mean", "case": "0.2", "published": 100.0},
        {
            "label": "ECMP",
            "unit": "s",
            "scheme": "ecmp",
            "metric": "fct_mean",
            "case": "0.2",
            "published": 100.0,
            "cause": "because",
        },
        {"label": "gain", "scheme": "ecmp", "over": ["spt"], "metric": "fct_mean", "across": "most", "published": 0.0},
        {
            "label": "UNBUILT",
            "unit": "s",
            "scheme": "unbuilt",
            "metric": "fct_mean",
            "published": 0.3,
        },
        {"label": "bound", "unit": "s", "scheme": "spt", "metric": "fct_p95", "published": 1e6, "bound": "at most"},
        {"label": "unmeasured", "published": 12.0, "cause": "no such counter"},
    ],
}


def runs_to_do(figure: Figure, plans: list[measure.Planned], cache: RunCache) -> int:
    return measure.to_do([(figure, plans)], cache)[0]


def reproduced(figure: Figure, form: Form = WHOLE, cache: RunCache | None = None) -> measure.Reproduced:
    plans = measure.plan(figure, form, seed=1)
    return measure.reproduce(figure, plans, form, 1, cache or RunCache(), lambda _job, _share: None)
