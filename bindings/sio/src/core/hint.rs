//! Hints: what a program is going to do with a file. They have two classes, and never affect
//! correctness.

use crate::core::codes::{Code, Failure, Result};
use crate::core::limits::{MAX_HINTS, MAX_RECORD_BYTES};
use crate::core::list::Span;
use std::collections::VecDeque;

/// Whether the accesses of a list happen in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// In the order of the list.
    Ordered,
    /// In any order.
    Unordered,
}

/// The order of accesses to the bytes of a hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Unknown.
    #[default]
    Unknown,
    /// From first to last.
    Sequential,
    /// From last to first.
    Reverse,
    /// At random, some of them.
    RandomPartial,
    /// At random, all of them.
    RandomComplete,
    /// In small pieces, each byte once: nothing should be cached.
    ReadOnce,
    /// In random order, a part of a record of this many bytes at a time. Records follow each other
    /// from the beginning of the file.
    Records(u64),
}

/// One hint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// The bytes will be read.
    pub read: bool,
    /// The bytes will be written.
    pub write: bool,
    /// The order of accesses.
    pub pattern: Pattern,
    /// The bytes are not needed any longer.
    pub no_further_use: bool,
    /// The bytes are needed soon.
    pub will_use: bool,
    /// Cancels all earlier hints of the class.
    pub cancel_all: bool,
    /// Cancels the oldest hint of the class.
    pub cancel_next: bool,
    /// The bytes; empty for the whole file.
    pub spans: Vec<Span>,
}

/// The bits of `sio_hint_flags_t`.
pub mod bits {
    #![allow(missing_docs)] // They are named as in C.
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const CANCEL_ALL: u32 = 4;
    pub const CANCEL_NEXT: u32 = 8;
    pub const SEQUENTIAL: u32 = 16;
    pub const REVERSE: u32 = 32;
    pub const RANDOM_PARTIAL: u32 = 64;
    pub const RANDOM_COMPLETE: u32 = 128;
    pub const NO_FURTHER_USE: u32 = 256;
    pub const WILL_USE: u32 = 512;
    pub const READ_ONCE: u32 = 1024;
    pub const RECORDS: u32 = 2048;
    pub const ALL: u32 = 4095;
}

impl Hint {
    /// A hint from its bits. `record_bytes` is used for the bit `RECORDS` only.
    ///
    /// # Errors
    /// `OpUnsupported` for unknown bits. `InvalidArgument` if two bits exclude each other, or if a
    /// record has no bytes or more than [`MAX_RECORD_BYTES`].
    pub fn new(flags: u32, spans: Vec<Span>, record_bytes: Option<u64>) -> Result<Self> {
        if flags & !bits::ALL != 0 {
            let what = format!("no hint has the bits {:#x}", flags & !bits::ALL);
            return Err(Failure::new(Code::OpUnsupported, what));
        }
        let has = |bit| flags & bit != 0;
        let patterns = [
            (bits::SEQUENTIAL, Pattern::Sequential),
            (bits::REVERSE, Pattern::Reverse),
            (bits::RANDOM_PARTIAL, Pattern::RandomPartial),
            (bits::RANDOM_COMPLETE, Pattern::RandomComplete),
            (bits::READ_ONCE, Pattern::ReadOnce),
            (bits::RECORDS, Pattern::Records(record_bytes.unwrap_or(0))),
        ];
        let mut named = patterns.into_iter().filter(|(bit, _)| has(*bit)).map(|(_, it)| it);
        let pattern = named.next().unwrap_or_default();
        let both = |one, other| has(one) && has(other);
        if named.next().is_some()
            || both(bits::WILL_USE, bits::NO_FURTHER_USE)
            || both(bits::CANCEL_ALL, bits::CANCEL_NEXT)
        {
            return Err(Failure::new(Code::InvalidArgument, "two bits exclude each other"));
        }
        if let Pattern::Records(bytes) = pattern
            && !(1..=MAX_RECORD_BYTES).contains(&bytes)
        {
            let what = format!("a record of {bytes} bytes: it has 1 to {MAX_RECORD_BYTES}");
            return Err(Failure::new(Code::InvalidArgument, what));
        }
        Ok(Self {
            read: has(bits::READ),
            write: has(bits::WRITE),
            pattern,
            no_further_use: has(bits::NO_FURTHER_USE),
            will_use: has(bits::WILL_USE),
            cancel_all: has(bits::CANCEL_ALL),
            cancel_next: has(bits::CANCEL_NEXT),
            spans,
        })
    }

    fn says_something(&self) -> bool {
        self.read
            || self.write
            || self.will_use
            || self.no_further_use
            || self.pattern != Pattern::Unknown
    }
}

/// The hints on a file that are in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    ordered: VecDeque<Hint>,
    unordered: VecDeque<Hint>,
}

impl Hints {
    /// Adds a hint. If a class has too many, its oldest hint is dropped.
    pub fn take(&mut self, class: Class, hint: Hint) {
        let list = match class {
            Class::Ordered => &mut self.ordered,
            Class::Unordered => &mut self.unordered,
        };
        if hint.cancel_all {
            list.clear();
        }
        if hint.cancel_next {
            list.pop_front();
        }
        if hint.says_something() {
            if list.len() == MAX_HINTS {
                list.pop_front();
            }
            list.push_back(hint);
        }
    }

    /// All hints in effect.
    pub fn iter(&self) -> impl Iterator<Item = &Hint> {
        self.ordered.iter().chain(&self.unordered)
    }

    /// Number of hints in effect, of both classes.
    pub fn len(&self) -> usize {
        self.ordered.len() + self.unordered.len()
    }

    /// Whether no hint is in effect.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pattern at a byte, from the newest hint that covers it.
    pub fn pattern_at(&self, offset: u64) -> Pattern {
        let names = |hint: &&Hint| {
            let inside = |span: &Span| span.start <= offset && offset < span.end();
            hint.pattern != Pattern::Unknown
                && (hint.spans.is_empty() || hint.spans.iter().any(inside))
        };
        let newest = |list: &VecDeque<Hint>| list.iter().rev().find(names).map(|hint| hint.pattern);
        newest(&self.ordered).or_else(|| newest(&self.unordered)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_hint_about_a_byte_holds_until_it_is_cancelled() {
        let mut hints = Hints::default();
        let random = Hint::new(bits::READ | bits::RANDOM_PARTIAL, vec![], None).unwrap();
        let part = vec![Span { start: 10, len: 5 }];
        let sequential = Hint::new(bits::SEQUENTIAL, part, None).unwrap();
        hints.take(Class::Ordered, random);
        hints.take(Class::Ordered, sequential);
        assert_eq!(hints.pattern_at(9), Pattern::RandomPartial);
        assert_eq!(hints.pattern_at(10), Pattern::Sequential);
        hints.take(Class::Ordered, Hint::new(bits::CANCEL_NEXT, vec![], None).unwrap());
        assert_eq!(
            (hints.pattern_at(9), hints.pattern_at(14)),
            (Pattern::Unknown, Pattern::Sequential)
        );
        hints.take(Class::Unordered, Hint::new(bits::CANCEL_ALL, vec![], None).unwrap());
        assert_eq!(hints.len(), 1, "another class");
        hints.take(Class::Ordered, Hint::new(bits::CANCEL_ALL, vec![], None).unwrap());
        assert!(hints.is_empty());
    }

    #[test]
    fn hints_have_a_bound() {
        let mut hints = Hints::default();
        for _ in 0..MAX_HINTS + 5 {
            hints.take(Class::Unordered, Hint::new(bits::WILL_USE, vec![], None).unwrap());
        }
        assert_eq!(hints.len(), MAX_HINTS);
    }

    #[test]
    fn bits_that_mean_nothing_are_refused() {
        let code =
            |flags| Hint::new(flags, vec![], None).map_or_else(|f| f.code, |_| Code::Success);
        assert_eq!(code(1 << 12), Code::OpUnsupported);
        assert_eq!(code(bits::READ_ONCE | bits::RANDOM_PARTIAL), Code::InvalidArgument);
        assert_eq!(code(bits::SEQUENTIAL | bits::REVERSE), Code::InvalidArgument);
        assert_eq!(code(bits::WILL_USE | bits::NO_FURTHER_USE), Code::InvalidArgument);
        assert_eq!(code(bits::CANCEL_ALL | bits::CANCEL_NEXT), Code::InvalidArgument);
        assert_eq!(code(bits::CANCEL_ALL | bits::READ), Code::Success);
    }

    #[test]
    fn a_record_has_bytes_and_not_too_many() {
        let hint = |bytes| Hint::new(bits::READ | bits::RECORDS, vec![], bytes);
        assert_eq!(hint(Some(838)).unwrap().pattern, Pattern::Records(838));
        for bytes in [None, Some(0), Some(MAX_RECORD_BYTES + 1)] {
            assert_eq!(hint(bytes).unwrap_err().code, Code::InvalidArgument, "{bytes:?}");
        }
    }
}
