//! Tests of the model that need whole fabrics.

mod fault;
mod five_tuples;
mod search;
