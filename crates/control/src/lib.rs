//! The controller as a pure state machine.
