//! The registry of schemes, one file per scheme.
