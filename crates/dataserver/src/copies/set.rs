//! The objects of a set, to compute one of them from others.

use super::columns::find;
use crate::checksums::checksums;
use crate::machine::change::copy_of;
use crate::peers::pull::Pull;
use crate::state::Shared;
use weir_types::{ColumnIndex, CopyIndex, Error, ErrorKind, ObjectId, Result, TargetId};
use weir_wire::data::{Access, ObjectStat};
use weir_wire::peer::{Build, Copies as Column};

/// The set of an object that is to be computed.
pub(super) struct Set<'a> {
    pub(super) shared: &'a Shared,
    /// The object and the code.
    pub(super) order: &'a Build,
}

impl Set<'_> {
    /// The objects of the set that can be read; all columns if parities do not count.
    pub(super) fn sources(&self, blocks: usize) -> Result<Vec<Option<Source>>> {
        let order = self.order;
        let ids = (0..blocks).map(|n| ObjectId {
            column: ColumnIndex(n as u16),
            copy: CopyIndex(0),
            ..order.object
        });
        let found = find(self.shared, ids.clone().collect())?;
        let mut sources = Vec::with_capacity(blocks);
        for (number, (object, column)) in ids.zip(found).enumerate() {
            let column = column.filter(|column| column.sealed);
            let column = column.ok_or_else(|| {
                Error::new(ErrorKind::Stale, "the segment has no parities any more")
            })?;
            let is_used = number != usize::from(order.object.column.0)
                && (order.coded || number < usize::from(order.columns));
            sources.push(match is_used {
                true => self.source(object, &column)?,
                false => None,
            });
        }
        Ok(sources)
    }

    /// One object; `None` if it cannot be read, and need not.
    fn source(&self, object: ObjectId, column: &Column) -> Result<Option<Source>> {
        let order = self.order;
        let found = self.who_has(object, column).and_then(|access| {
            let mut pull = Pull::new(self.shared.copies.lines.peers(), &access);
            let ObjectStat { exists, len, generation, .. } = pull.stat()?;
            pull.end();
            let is_fenced = order.coded || generation >= order.generation;
            match exists && is_fenced {
                true => Ok(Source { access, len }),
                false => Err(Error::new(ErrorKind::Busy, format!("{object} is not fenced yet"))),
            }
        });
        match found {
            Err(error) if order.coded => {
                tracing::debug!("{}: without {object}: {error}", order.object);
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// The copy that orders changes: it has all of them.
    fn who_has(&self, object: ObjectId, column: &Column) -> Result<Access> {
        let standings = &self.shared.copies.standings;
        let mut there = column.copies.iter().filter(|copy| copy.target != TargetId::NONE);
        let (first, others) = (there.next(), there.next().is_some());
        let only = first.filter(|copy| !others && !copy.filling && !standings.is_away(copy.target));
        let target = match others {
            true => standings.who_orders(&column.copies),
            // Only what has others has to be current.
            false => only.map(|copy| copy.target),
        };
        let target = target.ok_or_else(|| {
            Error::new(ErrorKind::Unreachable, format!("no copy of {object} is online"))
        })?;
        let at = column.copies.iter().position(|copy| copy.target == target).unwrap_or_default();
        Ok(Access {
            target,
            object: copy_of(object, at),
            generation: column.generation,
            capability: column.capability.clone(),
            mac: column.copies[at].mac,
            copies: if others { column.copies.clone() } else { Vec::new() },
            relay: None,
        })
    }

    /// Verified bytes of a source; none behind its end.
    pub(super) fn read(&self, source: &Source, at: u64, step: u64) -> Result<Vec<u8>> {
        let len = source.len.saturating_sub(at).min(step) as usize;
        let mut bytes = vec![0; len];
        if len == 0 {
            return Ok(bytes);
        }
        let object = source.access.object;
        for locked in [false, true] {
            let mut checks = Vec::new();
            let mut pull = Pull::new(self.shared.copies.lines.peers(), &source.access);
            let got = pull.read(at, &mut bytes, &mut checks, locked)?;
            pull.end();
            if got < len {
                return Err(Error::new(ErrorKind::Stale, format!("{object} has become shorter")));
            }
            if checksums(at, &bytes) == checks {
                return Ok(bytes);
            }
        }
        let what = format!("{object} does not match its checksum");
        Err(Error::new(ErrorKind::ChecksumMismatch, what))
    }
}

/// An object to compute from.
pub(super) struct Source {
    access: Access,
    pub(super) len: u64,
}
