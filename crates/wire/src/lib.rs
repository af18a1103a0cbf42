//! The protocol: frames, the handshake, keys, capabilities and messages.
//! Pure: bytes in, bytes out; randomness and time are passed in.
//!
//! `docs/format.md` draws every byte.

pub mod audit;
pub mod auth;
pub mod capability;
pub mod data;
pub mod frame;
pub mod handshake;
pub mod holders;
pub mod key;
pub mod lease;
pub mod lock;
pub mod map;
pub mod message;
pub mod meta;
pub mod peer;
pub mod private;
pub mod protection;
pub mod quota;
pub mod revoked;
pub mod targets;
pub mod ticket;

pub use auth::{Opener, Sealer};
pub use capability::{Capability, Rights, SignedCapability};
pub use frame::{FrameKind, HEADER_BYTES, Header};
pub use key::{Key, Mac};
pub use message::{Op, Request};
pub use protection::Level;
pub use ticket::{SealedTicket, Ticket};
