//! `weir reliability`: computes how long data lasts for layouts, codes, protocols and rebuild
//! speeds. Nothing is measured, and no cluster is needed.

pub mod arguments;
mod paper;
mod rows;
mod show;
pub mod units;

use crate::failure::Done;
use arguments::Reliability;

/// Runs `weir reliability`.
pub fn run(asked: &Reliability) -> Done {
    match asked.paper {
        true => paper::run(asked.json),
        false => show::show(asked, &rows::rows(asked)?),
    }
}
