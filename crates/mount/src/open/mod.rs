//! What programs have open, and what is known of these programs.

pub(crate) mod access;
pub(crate) mod below;
pub(crate) mod given_up;
pub(crate) mod handles;
pub(crate) mod jobs;
pub(crate) mod locks;
pub(crate) mod pins;
