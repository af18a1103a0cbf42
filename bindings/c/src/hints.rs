//! Hints: what a program says of how it is going to read. Nothing depends on them but speed.

use crate::args::range;
use crate::error::{invalid, status};
use crate::files::readable;
use crate::handles::{self, weir_file_t};
use crate::io::context;
use crate::session::OpenFile;
use std::ffi::c_int;
use weir_client::Hint;

/// Nothing is known: what is read in order is fetched ahead.
pub const WEIR_HINT_NORMAL: u32 = 0;
/// The handle will be read in no order: nothing is fetched ahead.
pub const WEIR_HINT_RANDOM: u32 = 1;
/// Each byte will be read once: nothing is fetched ahead or kept.
pub const WEIR_HINT_READ_ONCE: u32 = 2;
/// The range will be read soon: it is asked for now, as far as is fetched ahead of a reader.
pub const WEIR_HINT_WILL_NEED: u32 = 3;
/// The range will not be read again: what was fetched of it is given up.
pub const WEIR_HINT_DONE_WITH: u32 = 4;
/// The handle will be read from its end to its beginning: what is before a read is fetched ahead.
pub const WEIR_HINT_REVERSE: u32 = 5;
/// The handle will be read in no order, a part of a record of `len` bytes at a time: the whole record
/// comes with its first part. Records follow each other from the beginning of the file.
pub const WEIR_HINT_RECORDS: u32 = 6;

/// Says how an open file will be read. `hint`: one of WEIR_HINT_*; `offset` and `len` count for
/// WEIR_HINT_WILL_NEED and WEIR_HINT_DONE_WITH alone, and `len` for WEIR_HINT_RECORDS. A hint holds
/// for this handle, in this process.
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
