//! All tests of the crate in one program.

mod common;
mod fractional;
mod incremental;
mod max_min;
mod natural_demand;
mod placement;
mod placer;
mod shares;
