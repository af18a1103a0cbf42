//! Signals to callers that wait, and requests that others have to wait for.

pub(crate) mod arrivals;
pub(crate) mod heeds;
pub(crate) mod interrupt;
pub(crate) mod killed;
