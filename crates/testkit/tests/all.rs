//! All tests of the crate in one program.

mod cases;
mod switches;
