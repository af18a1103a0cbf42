//! Converts spans to regions: equal spans at equal distances become one region.

use crate::core::list::Span;
use std::borrow::Cow;
use weir_layout::{Region, RegionList};
use weir_types::Result;
use weir_types::limits::MAX_REGIONS;

/// Lists of regions that each fit a request, in order.
pub(super) fn lists(spans: &[Span]) -> Result<Vec<RegionList>> {
    let (mut lists, mut regions) = (Vec::new(), Vec::<Region>::new());
    for span in spans {
        if regions.last_mut().is_some_and(|last| extend(last, *span)) {
            continue;
        }
        if regions.len() == MAX_REGIONS {
            lists.push(RegionList::new(std::mem::take(&mut regions))?);
        }
        regions.push(Region::contiguous(span.start, span.len));
    }
    if !regions.is_empty() {
        lists.push(RegionList::new(regions)?);
    }
    Ok(lists)
}

/// Extends a region by a span, if the span is its next element.
fn extend(region: &mut Region, span: Span) -> bool {
    if region.size != span.len || span.start < region.offset + region.size {
        return false;
    }
    let stride = span.start - region.offset;
    match region.count {
        1 => region.stride = stride,
        count if stride == region.stride.saturating_mul(count.into()) => {}
        _ => return false,
    }
    region.count += 1;
    true
}

/// The spans sorted by offset, and the data in the same order.
pub(super) fn ascending<'a>(spans: &'a [Span], data: &[u8]) -> (Cow<'a, [Span]>, Option<Vec<u8>>) {
    if spans.is_sorted_by_key(|span| span.start) {
        return (Cow::Borrowed(spans), None);
    }
    let mut at = 0;
    let with_data = |span: &Span| {
        let begin = at;
        at += span.len as usize;
        (*span, &data[begin..at])
    };
    let mut all: Vec<_> = spans.iter().map(with_data).collect();
    all.sort_unstable_by_key(|(span, _)| span.start);
    let sorted = all.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    (Cow::Owned(all.into_iter().map(|(span, _)| span).collect()), Some(sorted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_strided_list_is_one_region() {
        let spans: Vec<Span> = (0..100).map(|i| Span { start: 7 + i * 90, len: 10 }).collect();
        let [list] = &lists(&spans).unwrap()[..] else { panic!("one list") };
        assert_eq!(list.regions(), [Region { offset: 7, size: 10, stride: 90, count: 100 }]);
        assert!(lists(&[]).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn lists_name_the_bytes_of_the_spans(
            steps in prop::collection::vec((0u64..4, 1u64..4), 0..900),
            shuffle in any::<bool>(),
        ) {
            let mut at = 5;
            let mut spans: Vec<Span> = steps.iter().map(|&(gap, len)| {
                let start = at + gap;
                at = start + len;
                Span { start, len }
            }).collect();
            if shuffle {
                spans.reverse();
            }
            let bytes = |spans: &[Span]| {
                spans.iter().flat_map(|s| s.start..s.end()).collect::<Vec<_>>()
            };
            let of = |lists: Vec<RegionList>| lists.iter().flat_map(RegionList::ranges)
                .flat_map(|(start, len)| start..start + len).collect::<Vec<_>>();
            prop_assert_eq!(of(lists(&spans).unwrap()), bytes(&spans));
            let data: Vec<u8> = bytes(&spans).iter().map(|at| *at as u8).collect();
            let (sorted, moved) = ascending(&spans, &data);
            prop_assert!(lists(&sorted).unwrap().iter().all(RegionList::is_ascending));
            let moved = moved.unwrap_or(data);
            prop_assert!(bytes(&sorted).iter().zip(&moved).all(|(at, byte)| *at as u8 == *byte));
        }
    }
}
