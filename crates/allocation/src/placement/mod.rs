//! The path of each flow.
//!
//! [`first_fit`] and [`anneal`] are plain functions. [`Placer`] keeps its state from flow to flow and searches paths
//! itself.
//!
//! Paths come from [`Paths`]; the caller decides how they are found, and what the ends of a flow are. Rates are whole
//! bits per second, so that reservations can be added and removed without rounding. Every placement returns its
//! number of operations (each examines one link of one path), for callers that charge modelled time.

mod annealing;
mod colouring;
mod demand_limits;
mod first_fit;
mod improve;
mod negotiate;
mod paths;
mod placer;
mod planes;
mod recolour;
mod round;
mod search;
mod state;
mod walk;

pub use annealing::{anneal, AnnealedFlow, Annealing, AnnealingSettings, Destination};
pub use first_fit::{first_fit, FirstFit, Placed, Request};
pub use paths::{PathTable, Paths};
pub use placer::{PlaceError, PlacedFlow, Placer, PlacerSettings, Round};
