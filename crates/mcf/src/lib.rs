//! Allocation as pure numbers: demand estimation and max-min water-filling.
