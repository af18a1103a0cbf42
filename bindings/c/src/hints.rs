//! Hints on how a program will read. They affect speed only.

use crate::args::range;
use crate::error::{invalid, status};
use crate::files::readable;
use crate::handles::{self, weir_file_t};
use crate::io::context;
use crate::session::OpenFile;
use std::ffi::c_int;
use weir_client::Hint;

/// No hint: sequential reads are fetched ahead.
pub const WEIR_HINT_NORMAL: u32 = 0;
/// Reads are in random order: nothing is fetched ahead.
pub const WEIR_HINT_RANDOM: u32 = 1;
/// Each byte is read once: nothing is fetched ahead or cached.
pub const WEIR_HINT_READ_ONCE: u32 = 2;
/// The range is read soon: it is requested at once, up to the read-ahead of a reader.
pub const WEIR_HINT_WILL_NEED: u32 = 3;
/// The range is not read again: its cached bytes are dropped.
pub const WEIR_HINT_DONE_WITH: u32 = 4;
/// The handle is read from end to beginning: bytes before a read are fetched ahead.
pub const WEIR_HINT_REVERSE: u32 = 5;
/// Reads are in random order, a part of a record of `len` bytes at a time: the first read of a
/// record fetches all of it. Records follow each other from the beginning of the file.
pub const WEIR_HINT_RECORDS: u32 = 6;

/// Gives a hint on how an open file will be read. `hint`: one of WEIR_HINT_*. `offset` and `len`
/// matter for WEIR_HINT_WILL_NEED and WEIR_HINT_DONE_WITH only, `len` also for WEIR_HINT_RECORDS.
/// The hint applies to this handle, in this process.
#[unsafe(no_mangle)]
pub extern "C" fn weir_hint(file: weir_file_t, hint: u32, offset: u64, len: u64) -> c_int {
    status(|| {
        let hint = match hint {
            WEIR_HINT_NORMAL => Hint::Normal,
            WEIR_HINT_RANDOM => Hint::Random,
            WEIR_HINT_READ_ONCE => Hint::ReadOnce,
            WEIR_HINT_WILL_NEED => Hint::WillNeed(offset, len),
            WEIR_HINT_DONE_WITH => Hint::DoneWith(offset, len),
            WEIR_HINT_REVERSE => Hint::Reverse,
            WEIR_HINT_RECORDS => Hint::Records(len),
            other => return Err(invalid(format!("hint {other} is not known"))),
        };
        range(offset, len)?;
        let handle = handles::get::<OpenFile>(file)?;
        readable(&handle)?;
        handle.open()?.file.hint(&context(&handle), hint)
    })
}
