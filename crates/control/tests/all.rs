//! All tests of the controller in one program, which compiles and links faster than one program per file.

mod applications;
mod assignments;
mod assignments_random;
mod budgets;
mod defaults;
mod detection;
mod drain;
mod dry_run;
mod faults;
mod limits;
mod moves;
mod places;
mod random_events;
mod restarts;
mod returns;
mod review;
mod sfmm;
mod sharing;
mod standing;
