//! Which path each flow takes.
//!
//! Paths come through [`Paths`]; how they are found, and what the ends of a flow are, is the caller's business. Rates
//! are whole bits per second, so that reservations add up and come off without rounding. Every placement returns the
//! number of operations it took (one is one link of one path looked at), for whoever charges modelled time.

mod annealing;
mod first_fit;
mod paths;

pub use annealing::{anneal, AnnealedFlow, Annealing, AnnealingSettings, Destination};
pub use first_fit::{first_fit, FirstFit, Placed, Request};
pub use paths::{PathTable, Paths};
