//! Layout maths: where the bytes of a file are. Pure: no I/O, no clock, no randomness of its own.
//!
//! From the outside in: [`mod@file`] finds the segments of a file range. [`region`] describes the
//! bytes of a request inside one segment. [`mod@share`] maps these to one column's object (on the
//! server) and to the caller's buffer (on the client). [`stripe`] is the arithmetic below, and
//! [`checks`] cuts pieces where their checksums are. [`mod@place`] chooses the targets of new
//! segments, [`mod@set`] those of erasure-coded sets. [`mod@advice`] finds the layout that fits an
//! access pattern.
//!
//! Invariant: `{base, count, unit}` alone locates every byte of a striped file. A server needs only
//! the request's descriptor and the stripe map to compute its share (`tests/paper_rows.rs`).

pub mod advice;
pub mod checks;
pub mod file;
pub mod place;
pub mod region;
pub mod set;
pub mod share;
pub mod stripe;

pub use checks::{Cut, clip, cut_count, cuts};
pub use file::{
    Span, begins_block, check_layout, covered_bytes, file_len, preferred_io_bytes, segment_at,
    split,
};
pub use place::{
    Apart, Domain, Groups, Home, Host, MAX_COPIES, Pairs, Spread, TargetInfo, Whereabouts,
    check_spec, grant, homes, place,
};
pub use region::{MAX_ELEMENTS, Region, RegionList};
pub use share::{ColumnSet, MAX_RUNS, Piece, Run, columns_touched, scatter, share};
pub use stripe::{
    Location, implied_segment_len, locate, object_len, segment_len, segment_offset, segment_ranges,
};
