//! Which path each flow takes.
//!
//! [`first_fit`] and [`anneal`] are plain functions; [`Placer`] keeps its state from flow to flow and searches paths
//! itself.
//!
//! Paths come through [`Paths`]; how they are found, and what the ends of a flow are, is the caller's business. Rates
//! are whole bits per second, so that reservations add up and come off without rounding. Every placement returns the
//! number of operations it took (one is one link of one path looked at), for whoever charges modelled time.

mod annealing;
mod colouring;
mod curb;
mod first_fit;
mod improve;
mod negotiate;
mod paths;
mod placer;
mod planes;
mod recolour;
mod round;
mod search;
mod standing;
mod walk;

pub use annealing::{anneal, AnnealedFlow, Annealing, AnnealingSettings, Destination};
pub use first_fit::{first_fit, FirstFit, Placed, Request};
pub use paths::{PathTable, Paths};
pub use placer::{PlaceError, PlacedFlow, Placer, PlacerSettings, Round};
