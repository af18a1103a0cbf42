//! Requests to servers: the session with the metadata server, the connections to data servers, and
//! the time for which leases count. Nothing here knows of open files.

pub(crate) mod lease_clock;
pub(crate) mod servers;
pub(crate) mod session;
