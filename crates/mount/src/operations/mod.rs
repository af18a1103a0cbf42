//! What the kernel asks for.

pub(crate) mod access_times;
pub(crate) mod callers;
mod file_hints;
mod file_io;
pub(crate) mod gone;
pub(crate) mod hints;
mod holes;
pub(crate) mod layouts;
mod listing;
mod lock_kind;
pub(crate) mod locks;
pub(crate) mod pins;
pub(crate) mod quotas;
