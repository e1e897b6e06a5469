//! Tests of whole fabrics of programs. What concerns one table is tested beside it.

mod attacks;
mod exhaustive;
mod net;
mod random;
mod takeover;
