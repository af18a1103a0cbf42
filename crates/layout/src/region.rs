//! The bytes of a request: a list of strided regions, as in the PVFS request descriptor and the
//! scatter-gather lists of the SIO low-level interface. The same descriptor goes to every server,
//! and each computes its own share.

use weir_types::codec::{Decode, DecodeError, Encode, Reader};
use weir_types::limits::{MAX_FILE_BYTES, MAX_REGIONS};
use weir_types::{Error, ErrorKind, Result};

/// Maximum number of separate elements of all regions in a list. Bounds the work that a short
/// message can cause.
pub const MAX_ELEMENTS: u64 = 65_536;

/// `count` elements of `size` bytes each, the first at `offset`, `stride` bytes from the start of
/// one to the start of the next. Offsets are relative to the segment; in a program's call to a
/// client, relative to the file.
///
/// A contiguous region has a count of 1, and its stride is ignored. Elements that overlap (stride
/// below size) are read twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// First byte of the first element.
    pub offset: u64,
    /// Bytes of each element; never 0.
    pub size: u64,
    /// Bytes from the start of one element to the start of the next.
    pub stride: u64,
    /// Number of elements; never 0.
    pub count: u32,
}

impl Region {
    /// A contiguous region.
    pub fn contiguous(offset: u64, size: u64) -> Self {
        Self { offset, size, stride: size, count: 1 }
    }

    /// The first byte after the last element; `u64::MAX` on overflow, which
    /// [`Self::check`] refuses.
    pub fn end(&self) -> u64 {
        let last = u64::from(self.count.saturating_sub(1)).saturating_mul(self.stride);
        self.offset.saturating_add(last).saturating_add(self.size)
    }

    /// Bytes of all elements; `u64::MAX` on overflow, which [`Self::check`]
    /// refuses.
    pub fn total_bytes(&self) -> u64 {
        self.size.saturating_mul(u64::from(self.count))
    }

    /// Whether the elements leave no gap between them.
    pub fn is_contiguous(&self) -> bool {
        self.count == 1 || self.stride == self.size
    }

    /// Refuses regions that are empty or reach beyond the largest file.
    ///
    /// # Errors
    /// `InvalidArgument` if empty, `FileTooLarge` if too long.
    pub fn check(&self) -> Result<()> {
        if self.size == 0 || self.count == 0 {
            return Err(invalid("a region is empty: leave it out of the list"));
        }
        if self.end() > MAX_FILE_BYTES || self.total_bytes() > MAX_FILE_BYTES {
            return Err(Error::new(
                ErrorKind::FileTooLarge,
                format!("a region reaches beyond the largest file ({MAX_FILE_BYTES} bytes)"),
            ));
        }
        Ok(())
    }

    /// Number of elements to walk; elements without gaps count as one.
    fn elements(&self) -> u64 {
        if self.is_contiguous() { 1 } else { u64::from(self.count) }
    }
}

impl Encode for Region {
    fn encode(&self, out: &mut Vec<u8>) {
        self.offset.encode(out);
        self.size.encode(out);
        self.stride.encode(out);
        self.count.encode(out);
    }
}

impl Decode for Region {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let region = Self {
            offset: Decode::decode(r)?,
            size: Decode::decode(r)?,
            stride: Decode::decode(r)?,
            count: Decode::decode(r)?,
        };
        region.check().map_err(|_| DecodeError::BadValue)?;
        Ok(region)
    }
}

/// 1 to [`MAX_REGIONS`] checked regions of at most [`MAX_ELEMENTS`] elements.
/// Their order is the order of the bytes in the caller's buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionList {
    regions: Vec<Region>,
}

impl RegionList {
    /// Checks the regions and their number.
    ///
    /// # Errors
    /// Those of [`Region::check`]; `InvalidArgument` if there are none or too
    /// many regions, elements or bytes.
    pub fn new(regions: Vec<Region>) -> Result<Self> {
        if regions.is_empty() {
            return Err(invalid("the list names no region"));
        }
        if regions.len() > MAX_REGIONS {
            return Err(invalid(format!(
                "{} regions in one request: split it, the most is {MAX_REGIONS}",
                regions.len()
            )));
        }
        regions.iter().try_for_each(Region::check)?;
        if regions.iter().map(Region::elements).sum::<u64>() > MAX_ELEMENTS {
            return Err(invalid(format!(
                "the regions have more than {MAX_ELEMENTS} elements: split the request"
            )));
        }
        let list = Self { regions };
        list.check_total_bytes(MAX_FILE_BYTES)?;
        Ok(list)
    }

    /// One contiguous region.
    ///
    /// # Errors
    /// Those of [`Region::check`].
    pub fn contiguous(offset: u64, size: u64) -> Result<Self> {
        Self::new(vec![Region::contiguous(offset, size)])
    }

    /// The regions, in order.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Bytes of all elements: the length of the caller's buffer.
    pub fn total_bytes(&self) -> u64 {
        // Cannot saturate once checked: see `new`.
        self.regions.iter().fold(0u64, |sum, r| sum.saturating_add(r.total_bytes()))
    }

    /// The first byte after the furthest element.
    pub fn end(&self) -> u64 {
        self.regions.iter().map(Region::end).max().unwrap_or(0)
    }

    /// Refuses a list of more than `limit_bytes` bytes in all.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_total_bytes(&self, limit_bytes: u64) -> Result<()> {
        let total = self.total_bytes();
        if total > limit_bytes {
            return Err(invalid(format!(
                "{total} bytes in one request: split it, the most is {limit_bytes}"
            )));
        }
        Ok(())
    }

    /// Whether every element begins at or after the end of the previous one. Then no byte is named
    /// twice, and the order of writing does not matter.
    pub fn is_ascending(&self) -> bool {
        let inside = self.regions.iter().all(|r| r.count == 1 || r.stride >= r.size);
        inside && self.regions.windows(2).all(|pair| pair[0].end() <= pair[1].offset)
    }

    /// The contiguous ranges `(offset, len)` of the list, in its order. Adjacent ranges are joined.
    pub fn ranges(&self) -> Ranges<'_> {
        Ranges { regions: self.regions.iter(), current: None, pending: None }
    }
}

impl Encode for RegionList {
    fn encode(&self, out: &mut Vec<u8>) {
        self.regions.encode(out);
    }
}

impl Decode for RegionList {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = u32::decode(r)? as usize;
        if len > MAX_REGIONS {
            return Err(DecodeError::TooLong);
        }
        let mut regions = Vec::with_capacity(len);
        for _ in 0..len {
            regions.push(Region::decode(r)?);
        }
        Self::new(regions).map_err(|_| DecodeError::BadValue)
    }
}

/// The iterator of [`RegionList::ranges`].
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    regions: std::slice::Iter<'a, Region>,
    /// The rest of the current region; its count is never 0.
    current: Option<Region>,
    /// An element that was taken and did not continue the previous range.
    pending: Option<(u64, u64)>,
}

impl Ranges<'_> {
    fn next_element(&mut self) -> Option<(u64, u64)> {
        let region = match self.current.take() {
            Some(region) => region,
            None => *self.regions.next()?,
        };
        if region.is_contiguous() {
            return Some((region.offset, region.total_bytes()));
        }
        self.current = Some(Region {
            offset: region.offset + region.stride,
            count: region.count - 1,
            ..region
        });
        Some((region.offset, region.size))
    }
}

impl Iterator for Ranges<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let (offset, mut len) = match self.pending.take() {
            Some(range) => range,
            None => self.next_element()?,
        };
        while let Some(next) = self.next_element() {
            if next.0 != offset + len {
                self.pending = Some(next);
                break;
            }
            len += next.1;
        }
        Some((offset, len))
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(offset: u64, size: u64, stride: u64, count: u32) -> Region {
        Region { offset, size, stride, count }
    }

    proptest! {
        #[test]
        fn a_list_survives_the_wire(
            raw in proptest::collection::vec((0u64..1 << 40, 1u64..1 << 20, 0u64..1 << 30, 1u32..200), 1..20),
        ) {
            let regions = raw.into_iter().map(|(o, s, t, c)| region(o, s, t, c)).collect();
            let list = RegionList::new(regions).unwrap();
            prop_assert_eq!(RegionList::from_bytes(&list.to_bytes()).unwrap(), list);
        }

        #[test]
        fn no_descriptor_from_the_wire_panics_or_escapes_its_limits(
            raw in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>()), 0..6),
        ) {
            let mut bytes = Vec::new();
            let regions: Vec<_> = raw.into_iter().map(|(o, s, t, c)| region(o, s, t, c)).collect();
            regions.encode(&mut bytes);
            if let Ok(list) = RegionList::from_bytes(&bytes) {
                prop_assert!(list.end() <= MAX_FILE_BYTES && list.total_bytes() <= MAX_FILE_BYTES);
                prop_assert!(list.ranges().count() as u64 <= MAX_ELEMENTS);
            }
        }

        #[test]
        fn ranges_name_the_same_bytes_in_the_same_order_and_never_touch(
            raw in proptest::collection::vec((0u64..50, 1u64..10, 0u64..15, 1u32..6), 1..6),
        ) {
            let regions: Vec<_> = raw.into_iter().map(|(o, s, t, c)| region(o, s, t, c)).collect();
            let naive: Vec<u64> = regions
                .iter()
                .flat_map(|r| (0..u64::from(r.count)).map(move |i| r.offset + i * r.stride).map(move |o| (o, r.size)))
                .flat_map(|(o, len)| o..o + len)
                .collect();
            let list = RegionList::new(regions).unwrap();
            let ranges: Vec<_> = list.ranges().collect();
            let walked: Vec<u64> = ranges.iter().flat_map(|&(o, len)| o..o + len).collect();
            prop_assert_eq!(list.total_bytes(), naive.len() as u64);
            prop_assert_eq!(list.end(), naive.iter().max().unwrap() + 1);
            if list.is_ascending() {
                prop_assert!(naive.windows(2).all(|pair| pair[0] < pair[1]));
            }
            prop_assert_eq!(walked, naive);
            prop_assert!(ranges.windows(2).all(|p| p[0].0 + p[0].1 != p[1].0));
        }
    }

    #[test]
    fn empty_and_endless_regions_are_refused() {
        for bad in [
            region(0, 0, 1, 1),
            region(0, 1, 1, 0),
            region(MAX_FILE_BYTES, 1, 0, 1),
            region(u64::MAX, u64::MAX, u64::MAX, u32::MAX),
            region(0, 1, MAX_FILE_BYTES, 2),
            region(0, MAX_FILE_BYTES, 0, 2),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
            assert!(RegionList::from_bytes(&vec![bad].to_bytes()).is_err(), "{bad:?}");
        }
        assert!(region(MAX_FILE_BYTES - 1, 1, u64::MAX, 1).check().is_ok());
    }

    #[test]
    fn list_limits_hold() {
        assert!(RegionList::new(vec![]).is_err());
        let one = Region::contiguous(0, 1);
        assert!(RegionList::new(vec![one; MAX_REGIONS]).is_ok());
        assert!(RegionList::new(vec![one; MAX_REGIONS + 1]).is_err());
        assert!(RegionList::new(vec![Region::contiguous(0, MAX_FILE_BYTES); 2]).is_err());
        assert!(RegionList::new(vec![region(0, 1, 2, 65_536)]).is_ok());
        assert!(RegionList::new(vec![region(0, 1, 2, 65_537)]).is_err());
        // Without gaps, many elements are one.
        assert!(RegionList::new(vec![region(0, 8, 8, u32::MAX)]).is_ok());
        let list = RegionList::contiguous(0, 4096).unwrap();
        assert!(list.check_total_bytes(4096).is_ok());
        let error = list.check_total_bytes(4095).unwrap_err();
        assert!(error.message.contains("split"), "{error}");
    }
}
