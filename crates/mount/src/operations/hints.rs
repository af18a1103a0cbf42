//! Hints of a program about itself, as extended attributes of a file that it has open. They are not
//! stored with the file, and end with its close.
//!
//! ```text
//! user.weir.ranges   0+64M,1G+64M    ranges of the file that it is going to read
//! user.weir.job      sort:3/8        it is process 3 of the 8 of the job `sort`
//! ```
//!
//! Those of how it reads the file are in `file_hints.rs`.

use crate::open::handles::{FileHandle, Handle, Reading};
use crate::open::jobs::{Part, process};
use crate::operations::file_hints::FileHint;
use crate::weirfs::WeirFs;
use std::sync::{Arc, PoisonError};
use weir_client::job::{Member, job_named};
use weir_fuse::{Errno, NodeId, Reply, RequestContext};
use weir_types::Rank;

/// The longest name of a job, bytes.
const MAX_NAME_BYTES: usize = 255;

/// Kind of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    Ranges,
    Job,
    /// How the file is read.
    File(FileHint),
}

impl Hint {
    /// The kind with this attribute name; `None` for ordinary attributes.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"user.weir.ranges" => Some(Self::Ranges),
            b"user.weir.job" => Some(Self::Job),
            _ => FileHint::named(name).map(Self::File),
        }
    }

    /// The part of a process in a job after a hint.
    fn said(self, before: &Part, value: &[u8], uid: u32) -> Reply<Part> {
        let text = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
        let text = text.trim_end_matches(['\0', '\n']);
        let part = before.clone();
        match self {
            Self::Ranges => {
                let ranges = text.parse().map_err(|_| Errno::EINVAL)?;
                Ok(Part { ranges: Some(Arc::new(ranges)), ..part })
            }
            Self::Job => {
                let member = member(text, uid).ok_or(Errno::EINVAL)?;
                Ok(Part { member: Some(member), ..part })
            }
            Self::File(_) => Ok(part),
        }
    }

    fn unsaid(self, before: &Part) -> Part {
        match self {
            Self::Ranges => Part { ranges: None, ..before.clone() },
            Self::Job => Part { member: None, ..before.clone() },
            Self::File(_) => before.clone(),
        }
    }

    fn shown(self, part: &Part) -> Option<String> {
        match self {
            Self::Ranges => part.ranges.as_ref().map(|ranges| ranges.to_string()),
            Self::Job => part.member.map(|m| format!("#{:016x}:{}/{}", m.job.0, m.rank.0, m.ranks)),
            Self::File(_) => None,
        }
    }
}

/// Parses `NAME:RANK/RANKS`. A name that begins like a displayed job number is invalid: it would be
/// another job, and a user who could give a number could join a job of another user.
fn member(text: &str, uid: u32) -> Option<Member> {
    let (name, of) = text.rsplit_once(':')?;
    let (rank, ranks) = of.split_once('/')?;
    let (rank, ranks): (u32, u32) = (rank.parse().ok()?, ranks.parse().ok()?);
    let is_name = (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('#');
    let job = job_named(name, uid);
    (is_name && rank < ranks).then_some(Member { job, rank: Rank(rank), ranks, shared: false })
}

impl WeirFs {
    /// Sets a hint of a process about a file, or removes it (`None`).
    pub(crate) fn hint(
        &self,
        ctx: &RequestContext<'_>,
        (node, hint): (NodeId, Hint),
        value: Option<&[u8]>,
    ) -> Reply<()> {
        if let Hint::File(hint) = hint
            && self.nodes.is_known(node)
        {
            return self.hint_below(ctx, (node, hint), value);
        }
        self.with_own(ctx, node, |handle| {
            if let Hint::File(hint) = hint {
                hint.give(&handle.context(ctx), handle, value)?;
                if value.is_none() {
                    // What is said of a directory above holds again.
                    self.hint_of_directory(ctx, handle);
                }
                return Ok(());
            }
            let mut reading = handle.reading.write().unwrap_or_else(PoisonError::into_inner);
            let part = match value {
                Some(value) => hint.said(&reading.part, value, ctx.uid)?,
                None if hint.shown(&reading.part).is_none() => return Err(Errno::ENODATA),
                None => hint.unsaid(&reading.part),
            };
            *reading = Reading::of(part);
            Ok(())
        })
    }

    /// The hint of a process, or its environment's value.
    pub(crate) fn hinted(
        &self,
        ctx: &RequestContext<'_>,
        (node, hint): (NodeId, Hint),
    ) -> Reply<Vec<u8>> {
        if let Hint::File(hint) = hint
            && self.nodes.is_known(node)
        {
            return self.hinted_below(ctx, (node, hint));
        }
        let mut shown = None;
        self.with_own(ctx, node, |handle| {
            let reading = handle.reading.read().unwrap_or_else(PoisonError::into_inner);
            shown = hint.shown(&reading.part);
            Ok(())
        })?;
        shown.map(String::into_bytes).ok_or(Errno::ENODATA)
    }

    /// Runs `act` for each handle of a file that the asking process has opened. `EBADF` if it has
    /// none.
    fn with_own(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        mut act: impl FnMut(&FileHandle) -> Reply<()>,
    ) -> Reply<()> {
        // Who cannot be seen from here cannot be told from others.
        let asking = process(ctx.pid).ok_or(Errno::EOPNOTSUPP)?;
        let handles = self.handles.of(self.file(node)?);
        let files = handles.iter().filter_map(|handle| Handle::file(handle).ok());
        let is_own = |file: &&FileHandle| {
            let reading = file.reading.read().unwrap_or_else(PoisonError::into_inner);
            reading.part.process == Some(asking)
        };
        let mut own = files.filter(is_own).peekable();
        own.peek().ok_or(Errno::EBADF)?;
        own.try_for_each(&mut act)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_with_the_process_and_how_many_there_are() {
        let of = |text: &str| member(text, 7).map(|m| (m.job, m.rank.0, m.ranks));
        assert_eq!(of("sort:3/8"), Some((job_named("sort", 7), 3, 8)));
        assert_eq!(of("a:b:0/1"), Some((job_named("a:b", 7), 0, 1)));
        let shown = Hint::Job.shown(&Part { member: member("sort:3/8", 7), ..Part::default() });
        assert_eq!(of(shown.unwrap().as_str()), None, "a number is nobody's to say");
        for wrong in ["", "sort", "sort:3", "sort:8/8", ":0/1", "sort:-1/8", "sort:0/0"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_said_stays_until_it_is_taken_back() {
        let nothing = Part::default();
        let ranges = Hint::Ranges.said(&nothing, b"0+1K\n", 0).unwrap();
        let both = Hint::Job.said(&ranges, b"j:0/2", 0).unwrap();
        assert_eq!(Hint::Ranges.shown(&both).as_deref(), Some("0+1024"));
        assert!(Hint::Job.shown(&both).unwrap().ends_with(":0/2"));
        assert_eq!(Hint::Job.unsaid(&both), ranges);
        assert_eq!(Hint::Ranges.said(&both, b"all", 0), Err(Errno::EINVAL));
        assert_eq!(Hint::named(b"user.weir.consistency"), None);
    }
}
