//! Tests of programs in whole fabrics.

mod attacks;
mod exhaustive;
mod moves;
mod net;
mod random;
mod takeover;
