//! Descriptors and handles. A number consists of a slot and a count of the slot's uses. So a closed
//! number does not match a later object, until a slot was used 2^20 times.

/// Number of bits for the slot.
const SLOT_BITS: u32 = 10;
/// Number of bits for the count of uses.
const COUNT_BITS: u32 = 20;

/// A table with at most `limit` entries. Numbers fit an `int` and are never 0.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<usize>,
    limit: usize,
}

impl<T> Table<T> {
    /// An empty table.
    pub const fn new(limit: usize) -> Self {
        assert!(limit <= 1 << SLOT_BITS);
        Self { slots: Vec::new(), free: Vec::new(), limit }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no entry is free.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Adds an object and returns its number; returns the object if the table is full.
    pub fn add(&mut self, thing: T) -> Result<u32, T> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.slots.len() < self.limit => {
                self.slots.push((0, None));
                self.slots.len() - 1
            }
            None => return Err(thing),
        };
        let (count, slot) = &mut self.slots[at];
        *count = if *count + 1 == 1 << COUNT_BITS { 1 } else { *count + 1 };
        *slot = Some(thing);
        Ok(*count << SLOT_BITS | at as u32)
    }

    fn slot(&self, number: u32) -> Option<usize> {
        let at = (number & ((1 << SLOT_BITS) - 1)) as usize;
        (self.slots.get(at)?.0 == number >> SLOT_BITS && number > 0).then_some(at)
    }

    /// The object with this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.slots[self.slot(number)?].1.as_ref()
    }

    /// The object with this number, mutable.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let at = self.slot(number)?;
        self.slots[at].1.as_mut()
    }

    /// Removes the object with this number.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let at = self.slot(number)?;
        let thing = self.slots[at].1.take()?;
        self.free.push(at);
        Some(thing)
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.1.as_ref())
    }

    /// All objects, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.1.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_never_found_again() {
        let mut table = Table::new(2);
        let one = table.add('a').unwrap();
        let two = table.add('b').unwrap();
        assert!(table.is_full());
        assert_eq!(table.add('c'), Err('c'));
        assert_eq!(table.remove(one), Some('a'));
        assert_eq!((table.remove(one), table.get(one)), (None, None));
        let three = table.add('d').unwrap();
        assert_ne!(three, one);
        assert_eq!(
            (table.get(one), table.get(two), table.get(three)),
            (None, Some(&'b'), Some(&'d'))
        );
        assert_eq!((table.get(0), table.get(u32::MAX)), (None, None));
        assert_eq!(table.iter().count(), 2);
    }

    #[test]
    fn numbers_fit_an_int_however_often_a_slot_is_used() {
        let mut table = Table::new(1);
        let mut last = 0;
        for _ in 0..(1 << COUNT_BITS) + 3 {
            let number = table.add(()).unwrap();
            assert!(number > 0 && i32::try_from(number).is_ok() && number != last);
            last = number;
            table.remove(number).unwrap();
        }
    }
}
