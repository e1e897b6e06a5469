//! What a switch does with a frame: a match/action pipeline with counters, timers, groups and meters.
