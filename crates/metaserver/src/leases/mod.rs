//! What clients hold, as the metadata server knows it: leases on ranges of files, cached names and
//! attributes, and the events that revoke them. This module does not know requests or the store;
//! `docs/leases.md` explains its purpose.
//!
//! Invariant: the records here cover at least what clients hold. A lease or a cached entry is
//! recorded before the reply that grants it is sent. It is removed only after the client has
//! confirmed that, or may not use it any more.

pub mod beliefs;
pub mod events;
pub mod ranges;
