//! The store from outside, and after every crash. All tests are one program: linking takes longer
//! than running most of them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests use the real one")]

mod crash;
mod crash_images;
mod damage;
mod failures;
mod full_disk;
mod gaps;
mod heard;
mod lifecycle;
mod model;
mod objects;
mod planted_bugs;
mod pledges;
mod rot;
mod sparse;
mod support;
mod sync_sites;
mod targets;
mod threads;
