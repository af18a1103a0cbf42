//! An object behaves as an array of bytes under any operations.

use crate::support::*;
use proptest::prelude::*;
use std::sync::Arc;
use weir_store::{Object, ReadMode};
use weir_types::Generation;

#[derive(Clone, Debug)]
enum Op {
    Write(Vec<(u64, u64)>, u64),
    Append(u64),
    Truncate(u64),
    Read(Vec<(u64, u64)>, ReadMode),
    Sync,
    Reopen,
}

/// An offset near the beginning, near a border of the format, or anywhere.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..20_000u64,
        2 => PAGE_BORDER - 10_000..PAGE_BORDER + 10_000,
        1 => Just(PAGE_BORDER),
        1 => (0..2000u64).prop_map(|block| block * BLOCK),
        1 => 0..9_000_000u64,
    ]
}

fn piece() -> impl Strategy<Value = (u64, u64)> {
    let len = prop_oneof![
        4 => 0..10_000u64,
        2 => (0..70u64).prop_map(|blocks| blocks * BLOCK),
        1 => 0..600_000u64,
    ];
    (offset(), len)
}

fn pieces() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop_oneof![
        3 => proptest::collection::vec(piece(), 1..=1),
        1 => proptest::collection::vec(piece(), 0..6),
        1 => (0..40_000u64, 1..3000u64, 0..3000u64, 1..30u64).prop_map(|(start, len, gap, n)| {
            (0..n).map(|i| (start + i * (len + gap), len)).collect()
        }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    use ReadMode::{Blocking, Exact, Locked, Nowait, Resident};
    let modes = [Nowait, Resident, Blocking, Exact, Locked];
    let mode = prop::sample::select(modes.to_vec());
    prop_oneof![
        6 => (pieces(), any::<u64>()).prop_map(|(p, seed)| Op::Write(p, seed)),
        2 => any::<u64>().prop_map(Op::Append),
        3 => offset().prop_map(Op::Truncate),
        6 => (pieces(), mode).prop_map(|(p, mode)| Op::Read(p, mode)),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

fn put(model: &mut Vec<u8>, offset: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let (start, end) = (offset as usize, offset as usize + data.len());
    if end > model.len() {
        model.resize(end, 0);
    }
    model[start..end].copy_from_slice(data);
}

fn take(model: &[u8], pieces: &[(u64, u64)]) -> Vec<u8> {
    let clip = |at: u64| (at as usize).min(model.len());
    pieces.iter().flat_map(|&(at, len)| &model[clip(at)..clip(at + len)]).copied().collect()
}

struct Run {
    store: TestTarget,
    object: Arc<Object>,
    /// First byte of the object that the model holds; all bytes before it are a hole.
    base: u64,
    model: Vec<u8>,
    generation: u64,
}

impl Run {
    fn new(base: u64) -> Self {
        let store = TestTarget::new();
        let object = store.target.object_or_create(object_id(1)).unwrap();
        let mut run = Run { store, object, base, model: Vec::new(), generation: 0 };
        if base > 0 {
            run = run.step(Op::Truncate(0));
        }
        run
    }

    fn place(&self, pieces: &[(u64, u64)]) -> Vec<(u64, u64)> {
        pieces.iter().map(|&(at, len)| (self.base + at, len)).collect()
    }

    fn write(&mut self, pieces: &[(u64, u64)], data: &[u8]) {
        let generation = Generation(self.generation);
        let placed = self.place(pieces);
        let len = write_pieces(&self.object, &placed, data, generation).unwrap();
        let mut rest = data;
        for &(offset, n) in pieces {
            let (bytes, others) = rest.split_at(n as usize);
            put(&mut self.model, offset, bytes);
            rest = others;
        }
        assert_eq!(len, self.base + self.model.len() as u64);
    }

    fn step(mut self, op: Op) -> Self {
        match op {
            Op::Write(pieces, seed) => {
                let total: u64 = pieces.iter().map(|p| p.1).sum();
                self.write(&pieces, &pattern(seed, total as usize));
            }
            Op::Append(seed) => {
                self.write(&[(self.model.len() as u64, 838)], &pattern(seed, 838));
            }
            Op::Truncate(len) => {
                self.generation += 1;
                self.object.truncate(self.base + len, Generation(self.generation)).unwrap();
                self.model.resize(len as usize, 0);
            }
            Op::Read(pieces, mode) => {
                let received = read_pieces(&self.object, &self.place(&pieces), mode).unwrap();
                let may_not_wait = matches!(mode, ReadMode::Nowait | ReadMode::Resident);
                if received != Received::WouldBlock || !may_not_wait {
                    assert_eq!(received, Received::Good(take(&self.model, &pieces)));
                }
            }
            Op::Sync => self.object.sync().unwrap(),
            Op::Reopen => {
                drop(self.object);
                self.store = self.store.reopen();
                self.object = self.store.target.object_or_create(object_id(1)).unwrap();
            }
        }
        assert_eq!(self.object.len(), self.base + self.model.len() as u64);
        assert_eq!(self.object.generation(), Generation(self.generation));
        self
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn an_object_is_an_array_of_bytes(
        // From the beginning, or so that a section ends where otherwise the first page of slots
        // does.
        base in prop_oneof![Just(0), Just(SECTION_BORDER - PAGE_BORDER)],
        ops in proptest::collection::vec(op(), 1..40),
    ) {
        let mut run = Run::new(base);
        for op in ops {
            run = run.step(op);
        }
        // Reads everything once more and verifies it, with a hole behind the end in which leftover
        // checksums would show.
        let len = run.model.len() as u64 + 2_000_000;
        run = run.step(Op::Truncate(len)).step(Op::Reopen);
        prop_assert!(read(&run.object, base, len) == run.model);
        run = run.step(Op::Truncate(0)).step(Op::Truncate(12_000_000));
        prop_assert!(read(&run.object, base, 12_000_000) == run.model);
    }
}
