//! Whole clusters in one thread, on virtual time, attacked by a seed.
