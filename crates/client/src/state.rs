//! What a client knows, holds and has under way. Each piece looks after itself and sends nothing;
//! what is sent because of it is in the layers above.

mod accesses;
mod buffer;
mod bytes;
mod damage;
mod drops;
mod events;
mod holdings;
mod inner;
mod locks;
mod open;
mod pairs;
mod read_op;
mod reader;
mod silent;
mod sizing;
mod together;
mod turns;
mod upper;
mod write_op;
mod writer;

pub(crate) use self::buffer::Buffer;
pub(crate) use self::bytes::{Bytes, WriteData};
pub(crate) use self::drops::ToDrop;
pub(crate) use self::events::{Duty, Told};
pub(crate) use self::inner::{Call, Inner};
pub(crate) use self::locks::{Owed, holder};
pub(crate) use self::open::{CUT_BYTES, OpenState, was_refused};
pub(crate) use self::read_op::{Around, ReadOp};
pub(crate) use self::reader::{Data, Piece, Reader};
pub(crate) use self::sizing::Sizing;
pub(crate) use self::together::{Queued, Waiting, Write};
pub use self::upper::UpperCache;
pub(crate) use self::write_op::{Sent, WriteOp};
pub(crate) use self::writer::{Failures, Gathered, InFlight, Writer};
