//! Leases on the bytes of files: entered by calls, given up when the metadata server wants them back.

mod cut;
mod drops;
mod enter;
mod events;
mod recall;

pub(crate) use self::cut::{Cut, share_size};
pub(crate) use self::enter::{Entered, enter, span};
