//! Writes that redb does not hold yet, in memory, and reads through them.

use crate::engine::{Key, Sequence, Value, Versioned};
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::Bound;
use weir_types::Result;

/// The last write of a key: its value, or `None` where it was deleted.
#[derive(Clone)]
pub(crate) struct Entry {
    pub version: Sequence,
    pub value: Option<Value>,
}

impl Entry {
    fn versioned(&self) -> Option<Versioned> {
        let version = self.version;
        self.value.clone().map(|value| Versioned { value, version })
    }
}

/// One generation of writes: the last of each key.
#[derive(Clone, Default)]
pub(crate) struct Overlay {
    entries: BTreeMap<Key, Entry>,
}

impl Overlay {
    pub fn write(&mut self, key: Key, value: Option<Value>, version: Sequence) {
        self.entries.insert(key, Entry { version, value });
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// `None`: look further down. `Some(None)`: deleted.
    pub fn get(&self, key: &[u8]) -> Option<Option<Versioned>> {
        self.entries.get(key).map(Entry::versioned)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// The entries of `start..end`. The caller ensures `start <= end`.
    fn range(&self, start: &[u8], end: &[u8]) -> btree_map::Range<'_, Key, Entry> {
        self.entries.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)))
    }
}

/// Reads a range through overlays, the newest first, down to the rows of
/// `base`. All of them are in key order; a newer layer hides the same key of
/// the older ones.
pub(crate) fn merged_range(
    layers: [Option<&Overlay>; 2],
    base: impl Iterator<Item = Result<(Key, Versioned)>>,
    start: &[u8],
    end: &[u8],
    limit: usize,
) -> Result<Vec<(Key, Versioned)>> {
    let mut layers = layers.map(|layer| layer.map(|overlay| overlay.range(start, end).peekable()));
    let mut base = base.peekable();
    let mut rows = Vec::with_capacity(limit.min(128));
    while rows.len() < limit {
        let Some((key, row)) = next_key(&mut layers, &mut base)? else { break };
        if let Some(row) = row {
            rows.push((key, row));
        }
    }
    Ok(rows)
}

type Layer<'a> = Option<Peekable<btree_map::Range<'a, Key, Entry>>>;

/// Removes the smallest key from all layers. The newest layer that has the key decides.
fn next_key(
    layers: &mut [Layer<'_>; 2],
    base: &mut Peekable<impl Iterator<Item = Result<(Key, Versioned)>>>,
) -> Result<Option<(Key, Option<Versioned>)>> {
    let overlaid = layers
        .iter_mut()
        .filter_map(|layer| layer.as_mut()?.peek().copied())
        // Of equal keys, `min_by` returns the first: that of the newest layer.
        .min_by(|a, b| a.0.cmp(b.0));
    let from_base = match (overlaid, base.peek()) {
        (Some((key, _)), Some(Ok((base_key, _)))) => base_key < key,
        (_, Some(_)) => true,
        (None, None) => return Ok(None),
        (Some(_), None) => false,
    };
    if from_base {
        return Ok(base.next().transpose()?.map(|(key, row)| (key, Some(row))));
    }
    let Some((key, entry)) = overlaid else { return Ok(None) };
    for layer in layers.iter_mut().flatten() {
        layer.next_if(|(other, _)| *other == key);
    }
    base.next_if(|row| matches!(row, Ok((other, _)) if other == key));
    Ok(Some((key.clone(), entry.versioned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Writes = Vec<(u8, Option<u8>)>;

    fn overlay(writes: &Writes, version: u64) -> Overlay {
        let mut overlay = Overlay::default();
        for (key, value) in writes {
            let value = value.map(|v| Value::from([v].as_slice()));
            overlay.write([*key].as_slice().into(), value, Sequence(version));
        }
        overlay
    }

    fn writes() -> impl Strategy<Value = Writes> {
        proptest::collection::vec((0u8..20, any::<Option<u8>>()), 0..20)
    }

    proptest! {
        #[test]
        fn a_range_through_layers_is_the_range_of_all_writes_in_order(
            oldest in writes(), middle in writes(), newest in writes(),
            start in 0u8..20, end in 0u8..21, limit in 0usize..12,
        ) {
            prop_assume!(start < end);
            let mut all = BTreeMap::new();
            for (version, layer) in [&oldest, &middle, &newest].into_iter().enumerate() {
                for (key, value) in layer {
                    all.insert(*key, value.map(|v| (v, version as u64 + 1)));
                }
            }
            let expected: Vec<(u8, u8, u64)> = all
                .range(start..end)
                .filter_map(|(k, v)| v.map(|(v, version)| (*k, v, version)))
                .take(limit)
                .collect();
            let base = overlay(&oldest, 1);
            let rows = base
                .range(&[start], &[end])
                .filter_map(|(k, e)| Some(Ok((k.clone(), e.versioned()?))));
            let (middle, newest) = (overlay(&middle, 2), overlay(&newest, 3));
            let layers = [Some(&newest), Some(&middle)];
            let found = merged_range(layers, rows, &[start], &[end], limit).unwrap();
            let found: Vec<_> =
                found.iter().map(|(k, v)| (k[0], v.value[0], v.version.0)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
