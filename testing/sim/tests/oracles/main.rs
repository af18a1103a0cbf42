//! The judges, on histories made by hand: good ones and bad ones.
#![allow(clippy::unwrap_used)]

mod copies;
mod data;
mod leases;
mod losses;
mod names;
mod story;
