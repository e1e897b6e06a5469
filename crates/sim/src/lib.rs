//! The packet-level simulator: one driver of control, switching and transport.
