"""Labs of routers: each switch is a namespace that forwards by IP, with static routes or BGP (docs/routed.md)."""
