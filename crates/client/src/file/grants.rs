//! What the metadata server granted of a file: layout, generation and
//! capabilities, fetched page by page and anew.

use super::OpenState;
use crate::client::Inner;
use crate::context::Context;
use crate::core::plan::{Part, Plan, plan_range};
use crate::drive::Call;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_layout::covered_bytes;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{CopyIndex, Error, ErrorKind, FileLayout, Generation, ObjectId, Result, TargetId};
use weir_wire::capability::{Capability, Rights, SignedCapability};
use weir_wire::data::{Access, CopyAccess};
use weir_wire::key::Mac;
use weir_wire::meta::{ExtendRequest, GetAttrRequest, GetLayoutRequest, LayoutPage, OpenFile};

/// What the metadata server granted.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) layout: FileLayout,
    pub(super) generation: Generation,
    pub(super) read: Capabilities,
    pub(super) write: Capabilities,
}

/// What may be done on each target. Pages of a layout bring capabilities of
/// their own, for their targets.
pub(super) type Capabilities = BTreeMap<TargetId, (Arc<Capability>, Mac)>;

impl OpenState {
    /// Takes over what a later open, create or setattr of the file returned.
    pub(crate) fn update(&self, open: &OpenFile) {
        self.change(|granted| {
            let end = covered_bytes(&open.layout);
            let old = std::mem::replace(&mut granted.layout, open.layout.clone());
            // The reply has the first page only: what is known of the others
            // stays, if it is of the same layout.
            if open.more_segments && old.epoch == open.layout.epoch {
                granted.layout.segments.extend(old.segments.into_iter().filter(|s| s.start >= end));
            }
            granted.generation = open.attr.generation;
        });
        self.take_capability(&open.capability);
        self.saw_attr(&open.attr);
        self.reader().clear();
    }

    pub(super) fn take_capability(&self, capability: &SignedCapability) {
        let rights = capability.capability.rights;
        self.change(|granted| {
            let shared = Arc::new(capability.capability.clone());
            let entries = || capability.macs.iter().map(|(t, mac)| (*t, (shared.clone(), *mac)));
            if rights.allow(Rights::READ) {
                granted.read.extend(entries());
            }
            if rights.allow(Rights::WRITE) {
                granted.write.extend(entries());
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Granted)) {
        let mut slot = self.granted.write();
        change(Arc::make_mut(&mut slot));
    }

    pub(super) fn granted(&self) -> Arc<Granted> {
        self.granted.read().clone()
    }

    /// The layout as last seen.
    pub(crate) fn layout(&self) -> FileLayout {
        self.granted().layout.clone()
    }

    /// Which servers a call concerns.
    pub(crate) fn plan(&self, offset: u64, len: u64) -> Result<Plan> {
        plan_range(self.id, &self.granted().layout, offset, len)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.granted().generation
    }

    /// What a request to a part's object shows. `Rights::NONE`: any right will do.
    pub(crate) fn access(&self, part: &Part, needed: Rights) -> Result<Access> {
        let granted = self.granted();
        let held = match needed {
            Rights::READ => &granted.read,
            Rights::WRITE => &granted.write,
            _ if granted.write.is_empty() => &granted.read,
            _ => &granted.write,
        };
        if held.is_empty() {
            let what = "the file is not open for this kind of access";
            return Err(Error::new(ErrorKind::BadHandle, what));
        }
        // Known for other targets only: a page of the layout is missing.
        let (capability, mac) = held.get(&part.target).ok_or(ErrorKind::BadCapability)?;
        Ok(Access {
            target: part.target,
            object: part.object,
            generation: granted.generation,
            capability: Capability::clone(capability),
            mac: *mac,
            copies: copies_of(&granted.layout, part.object, held)?,
            relay: None,
        })
    }

    /// Whether this client may write to it.
    pub(crate) fn is_writable(&self) -> bool {
        !self.granted().write.is_empty()
    }

    /// Gets layout, generation and capabilities anew, and the cluster map.
    pub(crate) fn refresh(&self, inner: &Inner, ctx: &Context) -> Result<()> {
        inner.servers.refresh_map(&inner.session, false)?;
        let attr = inner.session.call(ctx, &GetAttrRequest { file: self.id })?;
        let granted = self.granted();
        for rights in [Rights::READ, Rights::WRITE] {
            let had = if rights == Rights::READ { &granted.read } else { &granted.write };
            if !had.is_empty() {
                self.fetch_layout(inner, ctx, 0, rights)?;
            }
        }
        self.change(|granted| granted.generation = attr.generation);
        Ok(())
    }

    /// Fetches the layout page by page from `offset` on.
    pub(crate) fn fetch_layout(
        &self,
        inner: &Inner,
        ctx: &Context,
        mut offset: u64,
        rights: Rights,
    ) -> Result<()> {
        loop {
            let request = GetLayoutRequest { file: self.id, offset, rights };
            let page = inner.session.call(ctx, &request)?;
            let end = covered_bytes(&page.layout);
            self.take_page(&page, offset);
            if !page.more_segments || end <= offset {
                return Ok(());
            }
            offset = end;
        }
    }

    fn take_page(&self, page: &LayoutPage, asked: u64) {
        self.change(|granted| {
            let from = page.layout.segments.first().map_or(asked, |s| s.start);
            granted.layout.kind = page.layout.kind;
            granted.layout.base = page.layout.base;
            granted.layout.epoch = page.layout.epoch;
            granted.layout.segments.retain(|s| s.start < from);
            granted.layout.segments.extend(page.layout.segments.iter().cloned());
        });
        self.take_capability(&page.capability);
    }

    /// Sees to it that the layout covers what is about to be written.
    pub(crate) fn cover(&self, call: Call<'_>, end: u64) -> Result<()> {
        if end > MAX_FILE_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let mut covered = covered_bytes(&self.granted().layout);
        while covered < end {
            // The first byte that is missing, not the last: the reply begins
            // with the segment that holds it, and no gap may be left.
            let request = ExtendRequest { file: self.id, offset: covered };
            self.take_page(&call.inner.session.change(call.ctx, &request)?, covered);
            let now = covered_bytes(&self.granted().layout);
            if now <= covered {
                return Err(Error::new(ErrorKind::Internal, "the layout was not extended"));
            }
            covered = now;
        }
        Ok(())
    }
}

/// All copies of an object's column; none if there is only one.
fn copies_of(
    layout: &FileLayout,
    object: ObjectId,
    held: &Capabilities,
) -> Result<Vec<CopyAccess>> {
    let of = layout.segments.binary_search_by_key(&object.segment, |segment| segment.index);
    let Ok(segment) = of.map(|at| &layout.segments[at]) else { return Ok(Vec::new()) };
    let column = segment.columns.get(usize::from(object.column.0));
    let Some(column) = column.filter(|column| column.targets.len() > 1) else {
        return Ok(Vec::new());
    };
    let copy = |(copy, target): (usize, &TargetId)| {
        let (_, mac) = held.get(target).ok_or(ErrorKind::BadCapability)?;
        let filling = segment.is_filling(object.column, CopyIndex(copy as u8));
        Ok(CopyAccess { target: *target, mac: *mac, filling })
    };
    column.targets.iter().enumerate().map(copy).collect()
}
