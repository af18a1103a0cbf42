//! A simulated machine room: threads that take turns on virtual time, a
//! network and disks that fail, all of it decided by one seed.

pub mod disk;
