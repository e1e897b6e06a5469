//! TCP NewReno as pure state machines.
