//! The judges, on histories made by hand: good ones and bad ones.

mod copies;
mod data;
mod leases;
mod losses;
mod names;
mod story;
