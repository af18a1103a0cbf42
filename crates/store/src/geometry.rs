//! Positions of blocks and checksums in an object's file: pure arithmetic.
//!
//! A file is a sequence of sections. A section has 32 pages of checksum slots, followed by the
//! 32,768 blocks (128 MiB) of these slots. The header takes the first 128 slots of the first
//! section, which therefore has 128 blocks less.
//!
//! Slots come in multiples of 32 pages so that data begins at a multiple of 128 KiB. The page cache
//! keeps aligned data in large folios; with data one page off, a warm read or write of 64 KiB costs
//! a third more CPU.

use weir_types::limits::{BLOCK, BLOCK_BYTES, MAX_FILE_BYTES};

/// Bytes of one checksum slot.
pub(crate) const SLOT_BYTES: usize = 4;
/// Bytes of the header, at the start of the file.
pub(crate) const HEADER_BYTES: usize = 512;
/// The most blocks of one run: their slots take one page.
pub(crate) const MAX_RUN_BLOCKS: u64 = (BLOCK_BYTES / SLOT_BYTES) as u64;
/// Pages of slots in a section.
const SLOT_PAGES: u64 = 32;
/// Slots in a section, and its blocks (the first section has fewer blocks).
const SECTION_SLOTS: u64 = SLOT_PAGES * MAX_RUN_BLOCKS;
/// Pages of a section.
const SECTION_PAGES: u64 = SLOT_PAGES + SECTION_SLOTS;
/// Slots of the first section that the header takes.
const HEADER_SLOTS: u64 = (HEADER_BYTES / SLOT_BYTES) as u64;
/// Blocks whose slots are in the first page, beside the header.
pub(crate) const FIRST_PAGE_BLOCKS: u64 = MAX_RUN_BLOCKS - HEADER_SLOTS;

const _: () = {
    // The data of every section is aligned, though the first is shorter.
    assert!(SLOT_PAGES.is_power_of_two());
    assert!(HEADER_SLOTS.is_multiple_of(SLOT_PAGES) && HEADER_SLOTS < MAX_RUN_BLOCKS);
    // The largest object's positions fit the kernel's signed offsets.
    let sections = MAX_FILE_BYTES / BLOCK / SECTION_SLOTS + 2;
    assert!(sections * SECTION_PAGES <= i64::MAX as u64 / BLOCK);
};

fn section(block: u64) -> u64 {
    (block + HEADER_SLOTS) / SECTION_SLOTS
}

fn section_first_block(section: u64) -> u64 {
    (section * SECTION_SLOTS).saturating_sub(HEADER_SLOTS)
}

/// The page that holds a block's data.
fn data_page(block: u64) -> u64 {
    block + SLOT_PAGES * (section(block) + 1)
}

/// The first block of the section of a block.
pub(crate) fn section_start(block: u64) -> u64 {
    section_first_block(section(block))
}

/// The first block after the section of a block.
pub(crate) fn section_end(block: u64) -> u64 {
    section_first_block(section(block) + 1)
}

/// The blocks whose slots are in the same page as the slot of this block. All are of one section,
/// and they are at most [`MAX_RUN_BLOCKS`].
pub(crate) fn slot_mates(block: u64) -> std::ops::Range<u64> {
    let page = (block + HEADER_SLOTS) / MAX_RUN_BLOCKS;
    let first = |page: u64| (page * MAX_RUN_BLOCKS).saturating_sub(HEADER_SLOTS);
    first(page)..first(page + 1)
}

/// The positions in the file of all slot pages of a block's section, bytes.
pub(crate) fn slot_area(block: u64) -> std::ops::Range<u64> {
    let end = data_page(section_first_block(section(block))) * BLOCK;
    end - SLOT_PAGES * BLOCK..end
}

/// The position in the file of a block's slot, bytes. Slots of one section
/// follow each other.
pub(crate) fn slot_position(block: u64) -> u64 {
    let slot = (block + HEADER_SLOTS) % SECTION_SLOTS;
    slot_area(block).start + slot * SLOT_BYTES as u64
}

/// Bytes from the start of the file to the last slot of the first section, for an object of this
/// many bytes.
pub(crate) fn first_slots(object_bytes: u64) -> u64 {
    let slots = HEADER_SLOTS + block_count(object_bytes).min(section_end(0));
    slots.div_ceil(MAX_RUN_BLOCKS) * BLOCK
}

/// The first byte of the object whose data is at this file position, or later in the same page, or
/// whose slot is in that page.
pub(crate) fn first_byte_of(position: u64) -> u64 {
    first_block_of_slots(position).map_or_else(|| object_bytes(position), |block| block * BLOCK)
}

/// The first block whose slot is in the page of this file position; `None` if that page holds data.
pub(crate) fn first_block_of_slots(position: u64) -> Option<u64> {
    let page = position / BLOCK;
    let section = (page + HEADER_SLOTS) / SECTION_PAGES;
    let page = page - section_pages(page).start;
    let slot = section * SECTION_SLOTS + page * MAX_RUN_BLOCKS;
    (page < SLOT_PAGES).then(|| slot.saturating_sub(HEADER_SLOTS))
}

/// The position in the file of a byte of the object.
pub(crate) fn data_position(offset: u64) -> u64 {
    data_page(offset / BLOCK) * BLOCK + offset % BLOCK
}

/// The pages, of slots and data, of the section that contains this page of a file.
pub(crate) fn section_pages(page: u64) -> std::ops::Range<u64> {
    let section = (page + HEADER_SLOTS) / SECTION_PAGES;
    let start = |section: u64| (section * SECTION_PAGES).saturating_sub(HEADER_SLOTS);
    start(section)..start(section + 1)
}

/// Pages of slots in a section.
pub(crate) const PAGES_OF_SLOTS: u64 = SLOT_PAGES;

/// Bytes of data, without slots, in a range of a file.
pub(crate) fn data_in(range: std::ops::Range<u64>) -> u64 {
    let (mut at, mut data) = (range.start, 0);
    while at < range.end {
        let pages = section_pages(at / BLOCK);
        let begin = (pages.start + PAGES_OF_SLOTS) * BLOCK;
        let end = pages.end * BLOCK;
        data += range.end.min(end).saturating_sub(at.max(begin));
        at = end;
    }
    data
}

/// Number of blocks of an object of this many bytes. The last block may be partial.
pub(crate) fn block_count(object_bytes: u64) -> u64 {
    object_bytes.div_ceil(BLOCK)
}

/// The size of the file of an object of this many bytes. The file ends with the last byte of data,
/// and is never shorter than the first page.
pub(crate) fn file_bytes(object_bytes: u64) -> u64 {
    if object_bytes == 0 { BLOCK } else { data_position(object_bytes - 1) + 1 }
}

/// The length of the object whose file has this size. A file that ends among the slots of a section
/// (an append was interrupted) ends with the block before that section.
pub(crate) fn object_bytes(file_bytes: u64) -> u64 {
    let (page, rest) = (file_bytes / BLOCK, file_bytes % BLOCK);
    let first_block = section_first_block((page + HEADER_SLOTS) / SECTION_PAGES);
    match page.checked_sub(data_page(first_block)) {
        Some(blocks) => (first_block + blocks) * BLOCK + rest,
        None => first_block * BLOCK,
    }
}

/// A range of an object whose data is contiguous in the file, and whose slots are contiguous too.
/// It has at most [`MAX_RUN_BLOCKS`] blocks and is never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// First byte.
    pub(crate) start: u64,
    /// End, exclusive.
    pub(crate) end: u64,
}

impl Run {
    /// Cuts a range of an object into runs.
    pub(crate) fn split(mut start: u64, end: u64) -> impl Iterator<Item = Run> {
        std::iter::from_fn(move || {
            (start < end).then(|| {
                let block = start / BLOCK;
                let border = section_end(block).min(block + MAX_RUN_BLOCKS) * BLOCK;
                let run = Run { start, end: end.min(border) };
                start = run.end;
                run
            })
        })
    }

    /// Length, bytes.
    pub(crate) fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// The first block that it touches.
    pub(crate) fn first_block(self) -> u64 {
        self.start / BLOCK
    }

    /// The last block that it touches.
    pub(crate) fn last_block(self) -> u64 {
        (self.end - 1) / BLOCK
    }

    /// Number of blocks that the run touches.
    pub(crate) fn block_count(self) -> usize {
        (self.last_block() - self.first_block() + 1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_block() -> impl Strategy<Value = u64> {
        prop_oneof![0..200_000u64, 0..MAX_FILE_BYTES / BLOCK]
    }

    #[test]
    fn every_page_of_a_file_is_one_block_or_slots() {
        let mut used = std::collections::BTreeSet::new();
        for block in 0..100_000 {
            assert!(used.insert(data_page(block)), "block {block}");
            // 1024 slots share a page: its first must be a page of its own.
            if slot_position(block).is_multiple_of(BLOCK) || block == 0 {
                assert!(used.insert(slot_position(block) / BLOCK), "slot of block {block}");
            }
        }
        let last = data_page(99_999);
        let unused: Vec<u64> = (0..=last).filter(|page| !used.contains(page)).collect();
        // Only slots of blocks after these are missing.
        assert!(unused.iter().all(|&page| page * BLOCK > slot_position(99_999)), "{unused:?}");
    }

    #[test]
    fn the_first_slots_are_those_of_the_first_section() {
        let of = |blocks| first_slots(blocks * BLOCK);
        assert_eq!((of(0), of(896), of(897)), (BLOCK, BLOCK, 2 * BLOCK));
        for blocks in [1, 900, 4096, 32_640] {
            assert!((of(blocks) - BLOCK..of(blocks)).contains(&slot_position(blocks - 1)));
        }
        assert_eq!(of(32_641), SLOT_PAGES * BLOCK);
    }

    #[test]
    fn the_first_borders_are_where_the_format_document_says() {
        assert_eq!((slot_position(0), slot_position(896)), (512, 4096));
        assert_eq!((data_page(0), data_page(32_639)), (32, 32_671));
        assert_eq!((slot_position(32_639), slot_position(32_640)), (32 * 4096 - 4, 32_672 * 4096));
        assert_eq!((data_page(32_640), data_page(65_407)), (32_704, 65_471));
        assert_eq!((slot_position(65_408), data_page(65_408)), (65_472 * 4096, 65_504));
    }

    #[test]
    fn what_is_data_of_a_range_is_counted_without_slots() {
        let end = data_position(2 * SECTION_SLOTS * BLOCK);
        let slots = [slot_area(0), slot_area(section_end(0)), slot_area(2 * SECTION_SLOTS)];
        assert!(slots.iter().all(|slots| data_in(slots.clone()) == 0));
        assert_eq!(data_in(0..end), 2 * SECTION_SLOTS * BLOCK);
        for block in [0, 1, section_end(0) - 1, section_end(0), 2 * SECTION_SLOTS] {
            let at = data_position(block * BLOCK);
            assert_eq!(data_in(at..at + BLOCK), BLOCK);
        }
        let border = slot_area(section_end(0));
        assert_eq!(data_in(border.start - 100..border.end + 7), 107);
        assert_eq!(data_in(5..5), 0);
    }

    proptest! {
        #[test]
        fn no_block_shares_its_place_with_another_or_with_slots(a in any_block(), b in any_block()) {
            prop_assert_eq!(data_page(a) == data_page(b), a == b);
            prop_assert_eq!(slot_position(a) == slot_position(b), a == b);
            prop_assert_ne!(data_page(a), slot_position(b) / BLOCK);
            prop_assert!(slot_position(a) >= HEADER_BYTES as u64);
            prop_assert!(slot_area(a).contains(&slot_position(a)));
        }

        #[test]
        fn blocks_whose_slots_share_a_page_are_of_one_section(block in any_block()) {
            let mates = slot_mates(block);
            prop_assert!(mates.contains(&block));
            let page = |block| slot_position(block) / BLOCK;
            prop_assert_eq!(page(mates.start), page(mates.end - 1));
            prop_assert_ne!(page(mates.end), page(block));
            prop_assert!(section_start(block) <= mates.start && mates.end <= section_end(block));
            prop_assert_eq!(first_block_of_slots(slot_position(block)), Some(mates.start));
            prop_assert_eq!(first_block_of_slots(data_position(block * BLOCK)), None);
            prop_assert_eq!(first_byte_of(data_position(block * BLOCK + 7)), block * BLOCK + 7);
        }

        #[test]
        fn sections_are_aligned_and_follow_their_slots(block in any_block()) {
            let (area, end) = (slot_area(block), section_end(block));
            let first = section_first_block(section(block));
            prop_assert!((first..end).contains(&block));
            prop_assert_eq!(data_page(first) * BLOCK, area.end);
            prop_assert_eq!(area.end % (128 << 10), 0);
            prop_assert_eq!(slot_area(end).start, (data_page(end - 1) + 1) * BLOCK);
            prop_assert_eq!(slot_position(end - 1) + SLOT_BYTES as u64, area.end);
        }

        #[test]
        fn a_section_has_its_slots_and_its_blocks(block in any_block()) {
            let pages = section_pages(data_page(block));
            prop_assert_eq!(pages.start * BLOCK, slot_area(block).start);
            prop_assert_eq!(&pages, &section_pages(slot_position(block) / BLOCK));
            prop_assert_eq!(&pages, &section_pages(pages.end - 1));
            prop_assert_eq!(pages.end * BLOCK, slot_area(section_end(block)).start);
        }

        #[test]
        fn the_length_comes_back_from_the_size(
            len in prop_oneof![0..400_000 * BLOCK, 0..MAX_FILE_BYTES - (1 << 30)],
            near in 0..3u64,
        ) {
            let edge = section_end(len / BLOCK) * BLOCK + near - 1;
            for len in [len, edge] {
                prop_assert_eq!(object_bytes(file_bytes(len)), len);
            }
        }

        #[test]
        fn any_size_gives_a_length_whose_file_is_no_longer(size in 0..1u64 << 40) {
            let len = object_bytes(size);
            prop_assert!(file_bytes(len) <= size.max(file_bytes(0)));
            prop_assert!(file_bytes(len + 1) > size);
        }

        #[test]
        fn runs_cover_a_range_and_are_contiguous_in_the_file(
            start in 0..1u64 << 30, len in 0..1u64 << 28,
        ) {
            let mut next = start;
            for run in Run::split(start, start + len) {
                prop_assert_eq!(run.start, next);
                prop_assert!(run.block_count() as u64 <= MAX_RUN_BLOCKS);
                let (first, last) = (run.first_block(), run.last_block());
                prop_assert_eq!(
                    data_position(run.end - 1) - data_position(run.start),
                    run.end - 1 - run.start
                );
                prop_assert_eq!(
                    slot_position(last) - slot_position(first),
                    (last - first) * SLOT_BYTES as u64
                );
                next = run.end;
            }
            prop_assert_eq!(next, start + len);
        }
    }
}
