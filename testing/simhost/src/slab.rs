//! Values under identifiers that are never used twice.

/// Identifier of a value in a [`Slab`]: a slot and how often it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(u64);

impl Id {
    /// The slot: small, and used again once its value is gone.
    pub(crate) fn slot(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    /// As a number that is unique in its slab.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Back from a number; one that never was an identifier finds nothing.
    pub(crate) fn from_number(number: u64) -> Self {
        Self(number)
    }
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values in the order of their slots.
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> Id {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.generation += 1;
        entry.value = Some(value);
        Id(u64::from(entry.generation) << 32 | u64::from(slot))
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let slot = self.slots.get(id.slot())?;
        slot.value.as_ref().filter(|_| u64::from(slot.generation) == id.0 >> 32)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.slot())?;
        slot.value.as_mut().filter(|_| u64::from(slot.generation) == id.0 >> 32)
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        self.get(id)?;
        self.free.push(id.slot() as u32);
        self.slots[id.slot()].value.take()
    }

    /// The identifiers of all values that `wanted` picks.
    pub(crate) fn find(&self, mut wanted: impl FnMut(&T) -> bool) -> Vec<Id> {
        self.iter().filter(|(_, value)| wanted(value)).map(|(id, _)| id).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let id = Id(u64::from(slot.generation) << 32 | index as u64);
            slot.value.as_ref().map(|value| (id, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_finds_its_value_and_no_later_one() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        let c = slab.insert('c');
        assert_eq!(c.slot(), a.slot());
        assert_eq!((slab.get(a), slab.get(b), slab.get(c)), (None, Some(&'b'), Some(&'c')));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.find(|_| true), [c, b]);
        assert_eq!(slab.get(Id::from_number(77 << 32 | 99)), None);
    }
}
