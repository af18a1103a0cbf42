//! The layout of a file or directory as the extended attribute `user.weir.layout`, for programs that
//! have a mount alone, such as those that use MPI-IO (`docs/mpi.md`). It is not stored with the file
//! and is not listed, so that no copy of a file takes it along.
//!
//! ```text
//! unit=65536,count=4,copies=2    striped
//! chunk=67108864,copies=2        chunks
//! ```

use crate::translate::context;
use crate::weirfs::WeirFs;
use weir_client::Context;
use weir_fuse::{Errno, NodeId, Reply, RequestContext};
use weir_types::{FileId, FileKind, FileLayout, LayoutKind, LayoutSpec, Result};
use weir_wire::Rights;

/// Whether this is the attribute's name.
pub(crate) fn is_layout(name: &[u8]) -> bool {
    name == b"user.weir.layout"
}

impl WeirFs {
    /// Sets the layout of an empty file, or of new files of a directory. What the text does not
    /// name stays. `None`: that of the directory above.
    pub(crate) fn set_layout(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        text: Option<&[u8]>,
    ) -> Reply<()> {
        let (ctx, file) = (context(ctx), self.file(node)?);
        let layout = match text {
            Some(text) => {
                let before = self.of_node(file, self.layout_of(&ctx, file))?;
                Some(parse(text, before).ok_or(Errno::EINVAL)?)
            }
            None => None,
        };
        self.of_node(file, self.client.set_layout(&ctx, file, layout))
    }

    /// The layout of a file, or of new files of a directory; `ENODATA` if it has no short text.
    pub(crate) fn shown_layout(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Vec<u8>> {
        let (ctx, file) = (context(ctx), self.file(node)?);
        let layout = self.of_node(file, self.layout_of(&ctx, file))?;
        shown(&layout).map(String::into_bytes).ok_or(Errno::ENODATA)
    }

    fn layout_of(&self, ctx: &Context, file: FileId) -> Result<LayoutSpec> {
        if self.client.getattr(ctx, file)?.kind == FileKind::Directory {
            let spec = self.client.default_layout(ctx, file)?;
            return Ok(LayoutSpec { copies: spec.copies.max(1), ..spec });
        }
        // Dropped and not closed: a close would take the error of a write from who has written.
        let (open, _) = self.client.open(ctx, file, Rights::READ)?;
        Ok(spec_of(&open.layout()))
    }
}

/// The wish that a layout fulfils, except for the sizes of fragments. It says no number of copies if
/// there are parities in place of them: without those one copy would be too few.
fn spec_of(layout: &FileLayout) -> LayoutSpec {
    let first = layout.segments.first();
    let copies = match first.filter(|segment| !segment.is_coded()) {
        Some(plain) => plain.columns.first().map_or(1, |column| column.copies().count()),
        None => usize::from(first.is_none()),
    };
    let is_striped = layout.kind == LayoutKind::Striped;
    let columns = first.map_or(0, |segment| segment.columns.len());
    LayoutSpec {
        kind: layout.kind,
        count: if is_striped { columns as u16 } else { 0 },
        stripe_unit_bytes: first.filter(|_| is_striped).map_or(0, |s| s.stripe_unit_bytes),
        segment_bytes: first.filter(|_| !is_striped).and_then(|s| s.len).unwrap_or(0),
        copies: copies as u8,
        duplication: (copies > 1).then_some(layout.duplication),
        placement: layout.placement,
        ..LayoutSpec::default()
    }
}

/// A layout after a text; `None`: it is not understood.
fn parse(text: &[u8], before: LayoutSpec) -> Option<LayoutSpec> {
    let text = std::str::from_utf8(text).ok()?.trim_end_matches(['\0', '\n']);
    let mut spec = before;
    for word in text.split(',') {
        let (name, value) = word.split_once('=')?;
        let value: u64 = value.parse().ok().filter(|value| *value > 0)?;
        match name {
            "unit" | "count" => {
                if spec.kind != LayoutKind::Striped {
                    let LayoutSpec { copies, duplication, .. } = spec;
                    spec = LayoutSpec { copies, duplication, ..LayoutSpec::default() };
                }
                match name {
                    "unit" => spec.stripe_unit_bytes = value.try_into().ok()?,
                    _ => spec.count = value.try_into().ok()?,
                }
            }
            "chunk" => {
                if spec.kind != LayoutKind::Chunked {
                    let LayoutSpec { copies, duplication, .. } = spec;
                    let kind = LayoutKind::Chunked;
                    spec = LayoutSpec { kind, copies, duplication, ..LayoutSpec::default() };
                }
                spec.segment_bytes = value;
            }
            "copies" => {
                spec.copies = value.try_into().ok()?;
                if spec.copies == 1 {
                    spec.duplication = None;
                }
            }
            _ => return None,
        }
    }
    Some(spec)
}

/// A layout as text; what is 0 is left to others and not shown. `None`: fragments.
fn shown(spec: &LayoutSpec) -> Option<String> {
    let numbers = match spec.kind {
        LayoutKind::Striped => {
            [("unit", u64::from(spec.stripe_unit_bytes)), ("count", u64::from(spec.count))]
        }
        LayoutKind::Chunked => [("chunk", spec.segment_bytes), ("count", 0)],
        LayoutKind::Fragments => return None,
    };
    let copies = ("copies", u64::from(spec.copies));
    let words = numbers.into_iter().chain([copies]).filter(|(_, number)| *number > 0);
    Some(words.map(|(name, number)| format!("{name}={number}")).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::Placement;

    fn after(text: &str, before: &LayoutSpec) -> Option<String> {
        shown(&parse(text.as_bytes(), before.clone())?)
    }

    #[test]
    fn what_a_text_does_not_name_stays() {
        let two = LayoutSpec { copies: 2, count: 3, ..LayoutSpec::default() };
        assert_eq!(after("unit=131072", &two).unwrap(), "unit=131072,count=3,copies=2");
        assert_eq!(after("unit=4096,count=1\0", &two).unwrap(), "unit=4096,count=1,copies=2");
        assert_eq!(after("copies=1", &two).unwrap(), "count=3,copies=1");
        assert_eq!(after("chunk=1048576", &two).unwrap(), "chunk=1048576,copies=2");
        let coded = LayoutSpec { copies: 0, count: 3, ..LayoutSpec::default() };
        assert_eq!(after("unit=4096", &coded).unwrap(), "unit=4096,count=3");
    }

    #[test]
    fn another_family_begins_anew_but_for_its_copies() {
        let (kind, placement) = (LayoutKind::Chunked, Placement::Random);
        let chunks = LayoutSpec { kind, placement, copies: 2, ..LayoutSpec::default() };
        let striped = parse(b"count=4", chunks).unwrap();
        assert_eq!((striped.kind, striped.placement), (LayoutKind::Striped, Placement::Usual));
        assert_eq!(shown(&striped).unwrap(), "count=4,copies=2");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for wrong in ["", "unit", "unit=", "unit=0", "unit=64K", "count=70000", "width=4", "a=1"] {
            assert_eq!(after(wrong, &LayoutSpec::default()), None, "{wrong}");
        }
    }
}
