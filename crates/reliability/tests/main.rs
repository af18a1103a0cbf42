//! The models of reliability against the papers and against simulations.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod monte_carlo;
mod paper_rows;
mod properties;
