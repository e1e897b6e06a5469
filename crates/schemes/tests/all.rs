//! All tests of schemes in one program, which compiles and links sooner than one for each file.

mod bad_input;
mod batches;
mod conformance;
mod order;
mod quality;
mod registry;
mod robustness;
mod support;
mod waiting;
