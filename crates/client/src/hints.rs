//! What a program says of how it is going to read an open file. Nothing depends on it but speed.

use crate::context::Context;
use crate::core::lease::CallKind;
use crate::core::stream::Pattern;
use crate::file::File;
use crate::read::may_read_any_copy;
use std::sync::atomic::Ordering::Relaxed;
use weir_types::{Consistency, Result};

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
    /// These bytes will be read soon: offset and length (`will_need`). As many as are fetched ahead
    /// of a sequential reader are asked for now.
    WillNeed(u64, u64),
    /// These bytes will not be read again: offset and length (`done_with`). What was fetched of them
    /// is given up.
    DoneWith(u64, u64),
}

impl File {
    /// Takes a hint.
    ///
    /// # Errors
    /// Those of a lease that [`Hint::WillNeed`] cannot get.
    pub fn hint(&self, ctx: &Context, hint: Hint) -> Result<()> {
        match hint {
            Hint::Normal => self.pattern.store(Pattern::Usual as u8, Relaxed),
            Hint::Random | Hint::ReadOnce => self.pattern.store(Pattern::Random as u8, Relaxed),
            Hint::Reverse => self.pattern.store(Pattern::Reverse as u8, Relaxed),
            Hint::WillNeed(offset, len) => return self.will_need(ctx, offset, len),
            Hint::DoneWith(offset, len) => {
                self.state.reader().done_with(&(offset..offset.saturating_add(len)));
            }
        }
        Ok(())
    }

    pub(crate) fn pattern(&self) -> Pattern {
        let pattern = self.pattern.load(Relaxed);
        let is = |known: &Pattern| pattern == *known as u8;
        [Pattern::Random, Pattern::Reverse].into_iter().find(is).unwrap_or_default()
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
