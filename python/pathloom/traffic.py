"""Traffic by name. Each function returns the text for `--traffic`; `pathloom traffic list` explains the keys."""

from __future__ import annotations

from pathloom.specs import spec_text


def web_search(load: float = 0.4, **keys: object) -> str:
    """Poisson arrivals of flows with the sizes of a web-search cluster; `load` is a share of the access rate.

    >>> web_search(load=0.4, pattern="inter-leaf")
    'web-search:load=0.4,pattern=inter-leaf'
    """
    return spec_text("web-search", load=load, **keys)


def data_mining(load: float = 0.4, **keys: object) -> str:
    """Poisson arrivals of flows with the sizes of a data-mining cluster."""
    return spec_text("data-mining", load=load, **keys)


def hadoop(load: float = 0.4, **keys: object) -> str:
    """Poisson arrivals of flows with the sizes of a Hadoop cluster."""
    return spec_text("hadoop", load=load, **keys)


def web_server(load: float = 0.4, **keys: object) -> str:
    """Poisson arrivals of flows with the sizes of web servers."""
    return spec_text("web-server", load=load, **keys)


def flow_sizes(file: str, load: float = 0.4, **keys: object) -> str:
    """Poisson arrivals of flows with the sizes of a CSV file of size_bytes,cumulative probability.

    >>> flow_sizes("mine.csv", load=0.2)
    'mine.csv:load=0.2'
    """
    return spec_text(file, load=load, **keys)


def on_off(load: float = 0.4, **keys: object) -> str:
    """An ON-OFF source per host with log-normal periods and gaps."""
    return spec_text("on-off", load=load, **keys)


def long_lived(pattern: str = "stride", **keys: object) -> str:
    """Flows that run from the start to the end.

    >>> long_lived("permutation")
    'long-lived:pattern=permutation'
    """
    return spec_text("long-lived", pattern=pattern, **keys)


def incast(senders: int | None = None, size: str = "256KB", **keys: object) -> str:
    """Many hosts answer one host at the same time."""
    return spec_text("incast", senders=senders, size=size, **keys)


def all_reduce(size: str = "100MB", algorithm: str = "ring", **keys: object) -> str:
    """All-reduce of a buffer of `size` on every host.

    >>> all_reduce("1GB", "hierarchical", groups="server")
    'all-reduce:algorithm=hierarchical,size=1GB,groups=server'
    """
    return spec_text("all-reduce", algorithm=algorithm, size=size, **keys)


def all_gather(size: str = "100MB", algorithm: str = "ring", **keys: object) -> str:
    """Every host gets the parts of all others; `size` is that of the whole buffer."""
    return spec_text("all-gather", algorithm=algorithm, size=size, **keys)


def reduce_scatter(size: str = "100MB", algorithm: str = "ring", **keys: object) -> str:
    """Every host gets its part of the sum of all buffers of `size`."""
    return spec_text("reduce-scatter", algorithm=algorithm, size=size, **keys)


def broadcast(size: str = "100MB", algorithm: str = "tree", **keys: object) -> str:
    """One host sends a buffer of `size` to all others.

    >>> broadcast("1GB", root=3)
    'broadcast:algorithm=tree,size=1GB,root=3'
    """
    return spec_text("broadcast", algorithm=algorithm, size=size, **keys)


def reduce(size: str = "100MB", algorithm: str = "tree", **keys: object) -> str:
    """One host gets the sum of the buffers of `size` of all hosts."""
    return spec_text("reduce", algorithm=algorithm, size=size, **keys)


def all_to_all(size: str = "1MB", **keys: object) -> str:
    """Every host sends `size` to every other one, a few at a time unless `algorithm` says otherwise."""
    return spec_text("all-to-all", size=size, **keys)


def moe(tokens: int = 4096, **keys: object) -> str:
    """Tokens of each host go to the hosts of their experts, and results come back.

    >>> moe(experts=64, top=8, skew=0.5)
    'moe:tokens=4096,experts=64,top=8,skew=0.5'
    """
    return spec_text("moe", tokens=tokens, **keys)


def coflows(file: str, **keys: object) -> str:
    """The coflows of a trace in the text format of the coflow-benchmark.

    >>> coflows("FB2010.txt", scale=0.1)
    'coflow:file=FB2010.txt,scale=0.1'
    """
    return spec_text("coflow", file=file, **keys)


def flows(file: str, **keys: object) -> str:
    """The flows that a CSV file of start_s,src,dst,size_bytes lists."""
    return spec_text("flows", file=file, **keys)
