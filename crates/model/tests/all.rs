//! Tests of the model that need whole fabrics.

mod fault;
mod search;
