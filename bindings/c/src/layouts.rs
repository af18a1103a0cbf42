//! Layouts of files and directories.

use crate::args::{check_place, list, put};
use crate::error::{invalid, status};
use crate::handles::weir_fs_t;
use crate::names::{Named, with_path};
use std::ffi::{c_char, c_int};
use weir_layout::check_spec;
use weir_types::codec::Decode;
use weir_types::{
    Duplication, ErrorKind, FileKind, FileLayout, LayoutKind, LayoutSpec, Placement, Result,
    Segment,
};
use weir_wire::capability::Rights;

/// Stripe units are distributed to the targets round robin.
pub const WEIR_LAYOUT_STRIPED: u32 = 0;
/// Fragments of any size, each on one target.
pub const WEIR_LAYOUT_FRAGMENTS: u32 = 1;
/// Chunks, each on a target of its own.
pub const WEIR_LAYOUT_CHUNKED: u32 = 2;

/// Maximum number of fragments in a list.
const MAX_FRAGMENTS: usize = 1 << 16;

/// A layout. Set all bytes to zero first: a zero means "choose for me".
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_layout_t {
    /// WEIR_LAYOUT_STRIPED, WEIR_LAYOUT_FRAGMENTS or WEIR_LAYOUT_CHUNKED.
    pub kind: u32,
    /// Striped: the stripe unit in bytes, a multiple of 4096; 0: 64 KiB.
    pub stripe_unit_bytes: u32,
    /// Number of targets; 0: all.
    pub count: u32,
    /// 1: the first target is number `base` in the order of targets. 0: chosen to balance the load.
    pub has_base: u32,
    /// Striped and fragments: index of the first target.
    pub base: u32,
    /// Copies, at most 8; 0: 1.
    pub copies: u32,
    /// How copies are written: 0 default, 1 server-sync, 2 server-async, 3 client-sync, 4
    /// client-async, 5 hybrid.
    pub duplication: u32,
    /// Placement of copies: 0 default, 1 chained, 2 groups, 3 random, 4 graduated.
    pub placement: u32,
    /// Chunked: bytes of a chunk. Fragments: bytes of each fragment without an entry. 0: 64 MiB.
    pub segment_bytes: u64,
    /// Fragments: the size of each, in order.
    pub fragment_bytes: *mut u64,
    /// Number of entries of `fragment_bytes`.
    pub fragments: usize,
}

/// Converts a layout from C; `None` for NULL.
///
/// # Safety
/// `layout` is NULL or valid, its list too.
pub(crate) unsafe fn spec(layout: *const weir_layout_t) -> Result<Option<LayoutSpec>> {
    if layout.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, and by the contract of this function.
    let of = unsafe { layout.read_unaligned() };
    let tag = |tag: u32, what: &str| {
        u8::try_from(tag).map_err(|_| invalid(format!("layout: {what} {tag} is not known")))
    };
    let bad = |what: &str| invalid(format!("layout: {what} is not known"));
    let kind = LayoutKind::from_bytes(&[tag(of.kind, "kind")?]).map_err(|_| bad("kind"))?;
    let placement = Placement::from_bytes(&[tag(of.placement, "placement")?]);
    let duplication = match tag(of.duplication, "duplication")?.checked_sub(1) {
        None => None,
        Some(tag) => Some(Duplication::from_bytes(&[tag]).map_err(|_| bad("duplication"))?),
    };
    if of.fragments > MAX_FRAGMENTS {
        return Err(invalid(format!("layout: more than {MAX_FRAGMENTS} fragments")));
    }
    // SAFETY: by the contract of this function.
    let fragments = unsafe { list(of.fragment_bytes.cast_const(), of.fragments, "fragments") }?;
    let spec = LayoutSpec {
        kind,
        base: (of.has_base != 0).then_some(of.base),
        count: u16::try_from(of.count).map_err(|_| invalid("layout: count is too large"))?,
        stripe_unit_bytes: of.stripe_unit_bytes,
        segment_bytes: of.segment_bytes,
        fragment_bytes: fragments.to_vec(),
        copies: u8::try_from(of.copies).map_err(|_| invalid("layout: too many copies"))?,
        duplication,
        placement: placement.map_err(|_| bad("placement"))?,
        ..LayoutSpec::default()
    };
    check_spec(&spec)?;
    Ok(Some(spec))
}

/// Sets the layout of new files of a directory, changes the layout of an empty file, or sets the
/// number of copies of a file with data. NULL: the layout of the parent directory.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_layout_set(
    fs: weir_fs_t,
    path: *const c_char,
    layout: *const weir_layout_t,
) -> c_int {
    status(|| {
        // SAFETY: by the contract of this function.
        let spec = unsafe { spec(layout) }?;
        let run = |named: &Named<'_>| {
            let file = named.attr(true)?.file;
            named.client.set_layout(&named.connection.context, file, spec)
        };
        // SAFETY: by the contract of this function.
        unsafe { with_path(fs, path, run) }
    })
}

/// The layout of a file, or of new files of a directory. If `layout->fragment_bytes` is not NULL,
/// up to `layout->fragments` sizes of fragments are stored there; `layout->fragments` becomes the
/// actual number.
///
/// # Safety
/// The pointers are NULL or valid, the list of fragments too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_layout_get(
    fs: weir_fs_t,
    path: *const c_char,
    layout: *mut weir_layout_t,
) -> c_int {
    let run = |named: &Named<'_>| {
        let (client, ctx, attr) = (named.client, &named.connection.context, named.attr(true)?);
        match attr.kind {
            FileKind::Directory => client.default_layout(ctx, attr.file),
            FileKind::File => {
                let (file, _) = client.open(ctx, attr.file, Rights::READ)?;
                let layout = file.layout();
                file.close(ctx)?;
                let mut found = spec_of(&layout);
                // A new file with this layout has no parities at first, so one copy would be too
                // few.
                if layout.segments.first().is_some_and(Segment::is_coded) {
                    let of_dir = client.default_layout(ctx, named.parent()?.0)?;
                    (found.copies, found.duplication) = (of_dir.copies, of_dir.duplication);
                }
                Ok(found)
            }
            _ => Err(ErrorKind::InvalidArgument.into()),
        }
    };
    status(|| {
        check_place(layout, "layout")?;
        // SAFETY: by the contract of this function.
        let spec = unsafe { with_path(fs, path, run) }?;
        // SAFETY: checked, and by the contract of this function.
        let given = unsafe { layout.read() };
        // SAFETY: by the contract of this function.
        unsafe { put(layout, shown(&spec, &given)?, "layout") }
    })
}

/// The spec that describes a file's layout.
fn spec_of(layout: &FileLayout) -> LayoutSpec {
    let first = layout.segments.first();
    let copies = first.and_then(|s| s.columns.first()).map_or(1, |c| c.copies().count());
    let lengths = layout.segments.iter().map_while(|segment| segment.len);
    let fragment_bytes = match layout.kind {
        LayoutKind::Fragments => lengths.collect(),
        _ => Vec::new(),
    };
    LayoutSpec {
        kind: layout.kind,
        base: (layout.kind == LayoutKind::Striped).then_some(layout.base),
        count: first.map_or(0, |segment| segment.columns.len()) as u16,
        stripe_unit_bytes: first.map_or(0, |segment| segment.stripe_unit_bytes),
        segment_bytes: first.and_then(|segment| segment.len).unwrap_or(0),
        fragment_bytes,
        copies: copies as u8,
        duplication: (copies > 1).then_some(layout.duplication),
        placement: layout.placement,
        ..LayoutSpec::default()
    }
}

fn shown(spec: &LayoutSpec, given: &weir_layout_t) -> Result<weir_layout_t> {
    let most = spec.fragment_bytes.len();
    if !given.fragment_bytes.is_null() {
        if !given.fragment_bytes.is_aligned() {
            return Err(invalid("fragment_bytes is not aligned"));
        }
        let n = most.min(given.fragments);
        // SAFETY: the caller guarantees room for this many entries.
        unsafe {
            std::ptr::copy_nonoverlapping(spec.fragment_bytes.as_ptr(), given.fragment_bytes, n);
        }
    }
    Ok(weir_layout_t {
        kind: spec.kind as u32,
        stripe_unit_bytes: spec.stripe_unit_bytes,
        count: spec.count.into(),
        has_base: spec.base.is_some().into(),
        base: spec.base.unwrap_or(0),
        copies: u32::from(spec.copies).max(1),
        duplication: spec.duplication.map_or(0, |protocol| protocol as u32 + 1),
        placement: spec.placement as u32,
        segment_bytes: spec.segment_bytes,
        fragment_bytes: given.fragment_bytes,
        fragments: most,
    })
}
