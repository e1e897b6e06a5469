//! The contract between a routing scheme and whatever drives it.
