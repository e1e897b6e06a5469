//! All tests of schemes in one program, which compiles and links faster than one program per file.

mod bad_input;
mod batches;
mod conformance;
mod order;
mod quality;
mod registry;
mod remote;
mod robustness;
mod support;
mod waiting;
