//! What is in a file: sparse pages and a length.
//!
//! Pages are shared between copies and copied when they are changed, so a copy
//! of a disk costs next to nothing.
//!
//! Invariants, but while pieces of an interrupted state are laid over each
//! other (see [`Content::trim`]): no byte beyond the length is other than zero;
//! a page is either stored or reserved, never both.

use super::ranges::Ranges;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// Bytes of a sector: the disk writes it whole or not at all.
pub(super) const SECTOR: u64 = 512;
/// Sectors of a page.
pub(super) const SECTORS: u64 = PAGE / SECTOR;
const PAGE_BYTES: usize = PAGE as usize;

pub(super) type Page = [u8; PAGE_BYTES];

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pages: Arc<BTreeMap<u64, Arc<Page>>>,
    reserved: Ranges,
    len: u64,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Pages that take room.
    pub(super) fn allocated_pages(&self) -> u64 {
        self.pages.len() as u64 + self.reserved.total()
    }

    /// Pages that hold something.
    pub(super) fn stored_pages(&self) -> usize {
        self.pages.len()
    }

    /// Pages of `first..end` that do not take room yet.
    pub(super) fn missing_pages(&self, first: u64, end: u64) -> u64 {
        if first >= end {
            return 0;
        }
        let stored = self.pages.range(first..end).count() as u64;
        end - first - stored - self.reserved.count(first, end)
    }

    /// Whether a page takes room.
    pub(super) fn has_page(&self, page: u64) -> bool {
        self.missing_pages(page, page + 1) == 0
    }

    /// A page, if it is stored.
    pub(super) fn page(&self, page: u64) -> Option<&Arc<Page>> {
        self.pages.get(&page)
    }

    /// Reads; returns the bytes read, fewer only at the end.
    pub(super) fn read(&self, position: u64, into: &mut [u8]) -> usize {
        let wanted = self.len.saturating_sub(position).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < wanted {
            let at = position + done as u64;
            let start = (at % PAGE) as usize;
            let part = &mut into[done..wanted.min(done + PAGE_BYTES - start)];
            match self.pages.get(&(at / PAGE)) {
                Some(page) => part.copy_from_slice(&page[start..start + part.len()]),
                None => part.fill(0),
            }
            done += part.len();
        }
        wanted
    }

    /// The first byte at or after `position` that is stored.
    pub(super) fn next_data(&self, position: u64) -> Option<u64> {
        let page = self.pages.range(position / PAGE..).next()?.0;
        Some(position.max(page * PAGE)).filter(|found| *found < self.len)
    }

    /// The first byte at or after `position` that is not stored.
    pub(super) fn next_hole(&self, position: u64) -> u64 {
        let mut page = position / PAGE;
        for _ in self.pages.range(page..).zip(page..).take_while(|((p, _), n)| *p == n) {
            page += 1;
        }
        position.max(page * PAGE).min(self.len.max(position))
    }

    /// Bytes of all pages that are stored.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// All of it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// Stores bytes; the length does not change.
    pub(super) fn put(&mut self, position: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = position + done as u64;
            let start = (at % PAGE) as usize;
            let part = &bytes[done..bytes.len().min(done + PAGE_BYTES - start)];
            match <&Page>::try_from(part) {
                Ok(whole) => self.put_page(at / PAGE, Arc::new(*whole)),
                Err(_) => {
                    self.page_mut(at / PAGE)[start..start + part.len()].copy_from_slice(part);
                }
            }
            done += part.len();
        }
    }

    /// Stores sectors `first..end` of a page as they are in `from`.
    pub(super) fn put_sectors(&mut self, page: u64, first: u64, end: u64, from: &Arc<Page>) {
        if first == 0 && end == SECTORS {
            self.put_page(page, from.clone());
        } else {
            let bytes = (first * SECTOR) as usize..(end * SECTOR) as usize;
            self.page_mut(page)[bytes.clone()].copy_from_slice(&from[bytes]);
        }
    }

    fn put_page(&mut self, page: u64, bytes: Arc<Page>) {
        if Arc::make_mut(&mut self.pages).insert(page, bytes).is_none() {
            self.reserved.remove(page, page + 1);
        }
    }

    fn page_mut(&mut self, page: u64) -> &mut Page {
        self.reserved.remove(page, page + 1);
        let pages = Arc::make_mut(&mut self.pages);
        Arc::make_mut(pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES])))
    }

    /// Makes bytes zero; pages that lie in the range as a whole become holes.
    pub(super) fn zero(&mut self, start: u64, end: u64) {
        let touched: Vec<u64> =
            self.pages.range(start / PAGE..end.div_ceil(PAGE)).map(|(page, _)| *page).collect();
        for page in touched {
            let from = start.max(page * PAGE) - page * PAGE;
            let to = end.min((page + 1) * PAGE) - page * PAGE;
            if from == 0 && to == PAGE {
                Arc::make_mut(&mut self.pages).remove(&page);
            } else {
                self.page_mut(page)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Cuts it off or extends it with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.reserved.remove(len.div_ceil(PAGE), u64::MAX);
            self.len = len;
            self.trim();
        }
        self.len = len;
    }

    /// Forgets bytes beyond the length.
    pub(super) fn trim(&mut self) {
        self.zero(self.len, u64::MAX);
    }

    /// Sets room aside for pages that have none.
    pub(super) fn reserve(&mut self, first: u64, end: u64) {
        let stored: Vec<u64> = self.pages.range(first..end).map(|(page, _)| *page).collect();
        self.reserved.insert(first, end);
        for page in stored {
            self.reserved.remove(page, page + 1);
        }
    }

    /// Gives back room that was set aside.
    pub(super) fn unreserve(&mut self, first: u64, end: u64) {
        self.reserved.remove(first, end);
    }

    /// Turns one bit over; false if there is no such byte.
    pub(super) fn flip_bit(&mut self, byte: u64, bit: u32) -> bool {
        if byte >= self.len {
            return false;
        }
        self.page_mut(byte / PAGE)[(byte % PAGE) as usize] ^= 1 << (bit % 8);
        true
    }
}

impl Hash for Content {
    /// Pages of zeros count as holes: nobody can tell them apart by reading.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len.hash(state);
        for (number, page) in self.pages.iter().filter(|(_, page)| ***page != [0; PAGE_BYTES]) {
            number.hash(state);
            state.write(&page[..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_an_array_of_bytes_with_holes() {
        let mut rng = fastrand::Rng::with_seed(2);
        let (mut content, mut model) = (Content::default(), Vec::<u8>::new());
        for step in 0..3_000u32 {
            let at = rng.usize(0..30_000);
            let end = at + rng.usize(0..9_000);
            match rng.u8(0..10) {
                0..5 => {
                    let bytes = vec![step as u8 | 1; end - at];
                    content.put(at as u64, &bytes);
                    model.resize(model.len().max(end), 0);
                    content.set_len(model.len() as u64);
                    model[at..end].fill(step as u8 | 1);
                }
                5..7 => {
                    content.set_len(at as u64);
                    model.resize(at, 0);
                }
                7..9 => {
                    content.zero(at as u64, end as u64);
                    let len = model.len();
                    model[at.min(len)..end.min(len)].fill(0);
                }
                _ => content.reserve(at as u64 / PAGE, end as u64 / PAGE),
            }
            assert_eq!(content.bytes(), model, "step {step}");
            let pages = content.pages.keys().filter(|p| content.reserved.count(**p, **p + 1) > 0);
            assert_eq!(pages.count(), 0, "a page is stored or reserved");
        }
    }
}
