//! What a program says of how it is going to read an open file. Nothing depends on it but speed.

use super::File;
use crate::context::Context;
use crate::core::lease::CallKind;
use crate::core::stream::{MAX_AHEAD_BYTES, Pattern};
use crate::io::read::may_read_any_copy;
use std::sync::atomic::Ordering::Relaxed;
use weir_types::{Consistency, Error, ErrorKind, Result};

/// What a program says of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Nothing is known of how this handle will be read (`normal`).
    Normal,
    /// This handle will be read in no order (`random`).
    Random,
    /// Each byte will be read once by this handle, and in small pieces (`read_once`).
    ReadOnce,
    /// This handle will be read from its end to its beginning (`reverse`).
    Reverse,
    /// This handle will be read in no order, a part of a record of so many bytes at a time
    /// (`records`): the whole record comes with its first part. Records follow each other from the
    /// beginning of the file.
    Records(u64),
    /// These bytes will be read soon: offset and length (`will_need`). As many as are fetched ahead
    /// of a sequential reader are asked for now.
    WillNeed(u64, u64),
    /// These bytes will not be read again: offset and length (`done_with`). What was fetched of them
    /// is given up.
    DoneWith(u64, u64),
}

impl Hint {
    /// The largest record of [`Hint::Records`], bytes.
    pub const MAX_RECORD_BYTES: u64 = MAX_AHEAD_BYTES;

    /// Names of all hints, the same in every interface.
    pub const NAMES: [&str; 7] =
        ["normal", "random", "read_once", "reverse", "records", "will_need", "done_with"];

    /// The hint with this name; `None` if there is none. `offset` and `len` count for a hint of a range,
    /// and `len` for records.
    pub fn named(name: &str, offset: u64, len: u64) -> Option<Self> {
        Some(match name {
            "normal" => Self::Normal,
            "random" => Self::Random,
            "read_once" => Self::ReadOnce,
            "reverse" => Self::Reverse,
            "records" => Self::Records(len),
            "will_need" => Self::WillNeed(offset, len),
            "done_with" => Self::DoneWith(offset, len),
            _ => return None,
        })
    }
}

impl File {
    /// Takes a hint.
    ///
    /// # Errors
    /// `InvalidArgument`: a record of [`Hint::Records`] is empty, or larger than 4 MiB. Those of a lease
    /// that [`Hint::WillNeed`] cannot get.
    pub fn hint(&self, ctx: &Context, hint: Hint) -> Result<()> {
        match hint {
            Hint::Normal => self.set_pattern(Pattern::Usual),
            Hint::Random | Hint::ReadOnce => self.set_pattern(Pattern::Random),
            Hint::Reverse => self.set_pattern(Pattern::Reverse),
            Hint::Records(bytes) if (1..=Hint::MAX_RECORD_BYTES).contains(&bytes) => {
                self.set_pattern(Pattern::Records(bytes));
            }
            Hint::Records(_) => {
                let most = Hint::MAX_RECORD_BYTES;
                let text = format!("hint: a record has 1 to {most} bytes");
                return Err(Error::new(ErrorKind::InvalidArgument, text));
            }
            Hint::WillNeed(offset, len) => return self.will_need(ctx, offset, len),
            Hint::DoneWith(offset, len) => {
                self.state.reader().done_with(&(offset..offset.saturating_add(len)));
            }
        }
        Ok(())
    }

    fn set_pattern(&self, pattern: Pattern) {
        self.pattern.store(pattern.code(), Relaxed);
    }

    pub(crate) fn pattern(&self) -> Pattern {
        Pattern::of(self.pattern.load(Relaxed))
    }

    fn will_need(&self, ctx: &Context, offset: u64, len: u64) -> Result<()> {
        let (call, consistency) = (self.call(ctx), self.consistency());
        if consistency == Consistency::None || len == 0 {
            // Nothing may wait here.
            return Ok(());
        }
        let end = offset.saturating_add(len);
        let _entered = self.enter_reading(ctx, (offset..end, end), CallKind::Read, &|_| ())?;
        let leased = consistency == Consistency::Strict;
        let limit = if leased { self.state.lease().reach(offset) } else { u64::MAX };
        let any_copy = may_read_any_copy(call, consistency);
        self.state.reader().will_need(call, offset..end, (limit, leased), any_copy);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_that_of_a_hint() {
        assert!(Hint::NAMES.iter().all(|name| Hint::named(name, 1, 2).is_some()));
        assert_eq!(Hint::named("records", 1, 2), Some(Hint::Records(2)));
        assert_eq!(Hint::named("", 0, 0), None);
    }
}
