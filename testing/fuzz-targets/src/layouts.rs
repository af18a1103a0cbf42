//! What a request touches, and how a file is laid out: decoded, then handed to
//! the layout maths as a server and a client do.

use crate::random::Gen;
use crate::sample::Sample;
use weir_layout::{
    Domain, Home, Host, MAX_ELEMENTS, MAX_RUNS, Pairs, RegionList, TargetInfo, check_layout,
    check_spec, columns_touched, covered_bytes, cut_count, grant, place, preferred_io_bytes,
    scatter, segment_at, share, split,
};
use weir_types::limits::{MAX_FILE_BYTES, MAX_PAYLOAD_BYTES, MAX_PIECES};
use weir_types::{
    ColumnIndex, Decode, Encode, FileLayout, LayoutKind, LayoutSpec, Placement, SegmentIndex,
    ServerId, StripeMap, TargetId,
};

type Descriptor = ((StripeMap, ColumnIndex), RegionList);

/// Decodes the descriptor of a request and works out one column's share both
/// ways: server and client agree, and the work is bounded.
pub(crate) fn regions(data: &[u8]) {
    let Ok(descriptor) = Descriptor::from_bytes(data) else { return };
    assert_eq!(descriptor.to_bytes(), data);
    let ((stripe, column), list) = descriptor;
    assert!(list.end() <= MAX_FILE_BYTES && list.total_bytes() <= MAX_FILE_BYTES);
    assert!(list.ranges().count() as u64 <= MAX_ELEMENTS);
    let (mut pieces, mut runs) = (Vec::new(), Vec::new());
    let shared = share(&list, stripe, column, &mut pieces);
    let scattered = scatter(&list, stripe, column, &mut runs);
    assert!(pieces.len() <= MAX_PIECES && runs.len() <= MAX_RUNS);
    let Ok(total) = shared else { return };
    assert_eq!(total, pieces.iter().map(|p| p.len).sum::<u64>());
    assert!(pieces.iter().all(|p| p.len > 0 && p.end() <= MAX_FILE_BYTES));
    assert!(cut_count(&pieces) >= pieces.len() as u64);
    let touched = columns_touched(&list, stripe).expect("the stripe map passed `share`");
    assert_eq!(touched.contains(column), total > 0);
    if let Ok(sum) = scattered {
        assert_eq!(sum, total);
        assert!(runs.iter().all(|r| r.len > 0 && r.buffer_offset + r.len <= list.total_bytes()));
    }
}

pub(crate) fn regions_example(g: &mut Gen) -> Vec<u8> {
    let stripe = StripeMap::sample(g);
    let column = ColumnIndex(g.below(u64::from(stripe.columns)) as u16);
    ((stripe, column), RegionList::sample(g)).to_bytes()
}

/// Decodes a layout; one that passes `check_layout` has every byte it covers
/// in one segment.
pub(crate) fn file_layout(data: &[u8]) {
    let Ok(layout) = FileLayout::from_bytes(data) else { return };
    assert_eq!(layout.to_bytes(), data);
    assert!(preferred_io_bytes(&layout) as usize <= MAX_PAYLOAD_BYTES);
    let sound = check_layout(&layout).is_ok();
    let covered = covered_bytes(&layout);
    assert!(covered <= MAX_FILE_BYTES);
    for (offset, len) in [(0, u64::MAX), (covered / 2, 1 << 20), (covered, 1), (u64::MAX, 1)] {
        let spans: u64 = split(&layout, offset, len).map(|span| span.len).sum();
        if sound {
            assert_eq!(spans, covered.saturating_sub(offset).min(len));
            assert_eq!(segment_at(&layout, offset).is_some(), offset < covered);
        }
    }
}

/// Decodes a wish for a layout and has it placed: what is not refused gives a
/// sound layout that grows as far as it is written.
pub(crate) fn layout_spec(data: &[u8]) {
    let Ok(spec) = LayoutSpec::from_bytes(data) else { return };
    assert_eq!(spec.to_bytes(), data);
    let acceptable = check_spec(&spec).is_ok();
    let targets: Vec<_> = (0..5).map(target).collect();
    let none = Pairs::default();
    let Ok(mut layout) = place(&spec, &targets, &none, 7) else { return };
    assert!(acceptable);
    check_layout(&layout).expect("a layout that was placed is sound");
    assert_eq!(FileLayout::from_bytes(&layout.to_bytes()), Ok(layout.clone()));
    let next = SegmentIndex(layout.segments.len() as u32);
    let end = covered_bytes(&layout).saturating_add(1).min(MAX_FILE_BYTES);
    if let Ok(more) = grant(&layout, &spec, (&targets, &none), end, next, 8) {
        layout.segments.extend(more);
        check_layout(&layout).expect("a layout that was extended is sound");
    }
}

fn target(number: u32) -> TargetInfo {
    TargetInfo {
        target: TargetId(number),
        home: Home {
            server: ServerId(number / 2),
            host: Host(ServerId(number / 4 * 2)),
            domain: Domain(ServerId(number / 8 * 4)),
        },
        free_bytes: u64::from(number) << 40,
        online: number != 3,
        returns: number == 3,
        slow: number == 2,
        local: number == 1,
        primaries: u64::from(number % 3),
        wait_us: 0,
    }
}

pub(crate) fn layout_spec_example(g: &mut Gen) -> Vec<u8> {
    let kind = LayoutKind::sample(g);
    let size = |g: &mut Gen| if g.one_in(2) { 0 } else { g.below(1 << 20) << 12 };
    let fragments = if kind == LayoutKind::Fragments { g.below(5) } else { 0 };
    let spec = LayoutSpec {
        kind,
        base: g.one_in(2).then(|| g.below(5) as u32),
        count: g.below(6) as u16,
        stripe_unit_bytes: if g.one_in(2) { 0 } else { 4096 << g.below(5) },
        segment_bytes: if kind == LayoutKind::Striped { 0 } else { size(g) },
        fragment_bytes: (0..fragments).map(|_| 1 + g.below(1 << 30)).collect(),
        copies: g.below(3) as u8,
        duplication: Option::sample(g),
        placement: Placement::sample(g),
        ..LayoutSpec::default()
    };
    spec.to_bytes()
}
