//! Fake switches, strategies and golden files, for tests alone.
