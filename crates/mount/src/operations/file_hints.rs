//! Hints of how a program reads a file that it has open, as extended attributes (`docs/hints.md`).
//! They hold for the handles of the process that sets them, are not stored, and end with the close.
//! Those of a directory are the default of the files below it, for who says it on this mount.
//!
//! ```text
//! user.weir.hint.reverse                  it is read from its end to its beginning
//! user.weir.hint.records      64K         it is read by parts of records of so many bytes
//! user.weir.hint.will_need    0+4M        this range is read soon
//! ```

use crate::open::below::Said;
use crate::open::handles::FileHandle;
use crate::translate::data_context;
use crate::weirfs::WeirFs;
use std::ops::Range;
use weir_client::job::Partition;
use weir_client::{Context, Hint};
use weir_fuse::{Errno, NodeId, Reply, RequestContext};

/// What the names of these attributes begin with.
const PREFIX: &[u8] = b"user.weir.hint.";
/// The longest value that is kept of a directory, bytes.
const MAX_KEPT_BYTES: usize = 64;

/// Name of a hint; `None` if there is no such hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHint(Option<&'static str>);

impl FileHint {
    /// The hint with this attribute name; `None` for other attributes.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        let name = name.strip_prefix(PREFIX)?;
        Some(Self(Hint::NAMES.into_iter().find(|known| known.as_bytes() == name)))
    }

    /// The hints that a value of this attribute gives.
    fn said(self, value: &str) -> Reply<Vec<Hint>> {
        let name = self.0.ok_or(Errno::EINVAL)?;
        let parse = |ranges: &str| ranges.parse::<Partition>().map_err(|_| Errno::EINVAL);
        let ranges = match name {
            "will_need" | "done_with" => parse(value)?.ranges().to_vec(),
            "records" if value.contains([',', '+']) => return Err(Errno::EINVAL),
            // A size is written as the length of a range.
            "records" => parse(&format!("0+{value}"))?.ranges().to_vec(),
            _ if value.is_empty() => vec![Range::default()],
            _ => return Err(Errno::EINVAL),
        };
        let hint = |range: Range<u64>| {
            Hint::named(name, range.start, range.end - range.start).ok_or(Errno::EINVAL)
        };
        ranges.into_iter().map(hint).collect()
    }

    /// What a value of this attribute says of the files below a directory: a way to read.
    fn said_below(self, value: &[u8]) -> Reply<Said> {
        let text = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
        let text = text.trim_end_matches(['\0', '\n']);
        let name = self.0.ok_or(Errno::EINVAL)?;
        if text.len() > MAX_KEPT_BYTES {
            return Err(Errno::EINVAL);
        }
        match self.said(text)?[..] {
            [Hint::WillNeed(..) | Hint::DoneWith(..)] => Err(Errno::EINVAL),
            [Hint::Records(bytes)] if bytes > Hint::MAX_RECORD_BYTES => Err(Errno::EINVAL),
            [hint] => Ok(Said { name, value: text.into(), hint }),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The hint that takes this one back; `None` if nothing does.
    fn taken_back(self) -> Option<Hint> {
        let is_way_to_read = matches!(self.0?, "random" | "read_once" | "reverse" | "records");
        is_way_to_read.then_some(Hint::Normal)
    }

    /// Gives the hint to a handle, or takes it back (`None`).
    pub(crate) fn give(
        self,
        ctx: &Context,
        handle: &FileHandle,
        value: Option<&[u8]>,
    ) -> Reply<()> {
        let hints = match value {
            Some(value) => {
                let text = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
                self.said(text.trim_end_matches(['\0', '\n']))?
            }
            None => vec![self.taken_back().ok_or(Errno::ENODATA)?],
        };
        hints.into_iter().try_for_each(|hint| Ok(handle.file.hint(ctx, hint)?))
    }
}

impl WeirFs {
    /// Says of a directory how the files below it are read, or takes it back (`None`).
    pub(crate) fn hint_below(
        &self,
        ctx: &RequestContext<'_>,
        (node, hint): (NodeId, FileHint),
        value: Option<&[u8]>,
    ) -> Reply<()> {
        let at = (self.file(node)?, ctx.uid);
        match value {
            Some(value) => self.below.say(at, hint.said_below(value)?),
            None => self.below.take_back(at, hint.0.ok_or(Errno::ENODATA)?),
        }
    }

    /// What the asking user has said of a directory under this name.
    pub(crate) fn hinted_below(
        &self,
        ctx: &RequestContext<'_>,
        (node, hint): (NodeId, FileHint),
    ) -> Reply<Vec<u8>> {
        self.below.value((self.file(node)?, ctx.uid), hint.0.ok_or(Errno::ENODATA)?)
    }

    /// Gives a new handle the hint of the nearest directory above its file of which its user has
    /// said one.
    pub(crate) fn hint_of_directory(&self, ctx: &RequestContext<'_>, handle: &FileHandle) {
        if self.below.is_empty() {
            return;
        }
        let Some(dir) = self.cache.files.dir(handle.file.id()) else { return };
        if let Some(hint) = self.below.nearest(&self.nodes.above(dir), ctx.uid) {
            // Its value was checked; and without it the file is read all the same.
            let _ = handle.file.hint(&data_context(ctx), hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hint_has_a_name_and_a_value() {
        let said = |name: &[u8], value: &str| FileHint::named(name).unwrap().said(value);
        assert_eq!(said(b"user.weir.hint.reverse", ""), Ok(vec![Hint::Reverse]));
        assert_eq!(said(b"user.weir.hint.read_once", ""), Ok(vec![Hint::ReadOnce]));
        assert_eq!(said(b"user.weir.hint.records", "64K"), Ok(vec![Hint::Records(65_536)]));
        let ranges = said(b"user.weir.hint.will_need", "4M+1M,0+8");
        assert_eq!(ranges, Ok(vec![Hint::WillNeed(0, 8), Hint::WillNeed(4 << 20, 1 << 20)]));
        assert_eq!(said(b"user.weir.hint.done_with", "0+1"), Ok(vec![Hint::DoneWith(0, 1)]));
        for (name, value) in [
            (&b"user.weir.hint.reverse"[..], "yes"),
            (b"user.weir.hint.records", ""),
            (b"user.weir.hint.records", "1,0+2"),
            (b"user.weir.hint.records", "0"),
            (b"user.weir.hint.will_need", "all"),
            (b"user.weir.hint.expected_size", "1G"),
        ] {
            assert_eq!(said(name, value), Err(Errno::EINVAL), "{value}");
        }
        assert_eq!(FileHint::named(b"user.weir.job"), None);
        assert_eq!(FileHint::named(b"user.weir.hint."), Some(FileHint(None)));
    }

    #[test]
    fn of_a_directory_only_a_way_to_read_can_be_said() {
        let said = |name: &[u8], value: &[u8]| FileHint::named(name).unwrap().said_below(value);
        let records = said(b"user.weir.hint.records", b"64K\n").unwrap();
        assert_eq!((records.name, records.hint), ("records", Hint::Records(65_536)));
        assert_eq!(records.value, b"64K");
        for (name, value) in [
            (&b"user.weir.hint.will_need"[..], &b"0+1"[..]),
            (b"user.weir.hint.done_with", b"0+1"),
            (b"user.weir.hint.records", b"8M"),
            (b"user.weir.hint.records", &[b'0'; 65]),
            (b"user.weir.hint.size", b""),
        ] {
            assert_eq!(said(name, value), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn ways_to_read_are_taken_back() {
        let taken_back = |name: &[u8]| FileHint::named(name).unwrap().taken_back();
        assert_eq!(taken_back(b"user.weir.hint.records"), Some(Hint::Normal));
        assert_eq!(taken_back(b"user.weir.hint.will_need"), None);
        assert_eq!(taken_back(b"user.weir.hint.size"), None);
    }
}
