//! Changes and their epochs. A server may be delayed between checking that a change is allowed and
//! applying it. So that no old change comes after a new one, changes being applied are counted.

use std::collections::BTreeMap;
use weir_host::plant::{Bug, planted};
use weir_host::sync::{Condvar, Mutex};
use weir_types::{Epoch, Result, TargetId};

/// Changes that are being applied to disks. They wait for nothing else.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    applying: Mutex<BTreeMap<(TargetId, Epoch), u32>>,
    ended: Condvar,
}

impl Turns {
    /// Applies a change if `may` allows it and returns its epoch, after everything under earlier
    /// epochs has ended.
    pub(crate) fn apply<T>(
        &self,
        target: TargetId,
        may: impl Fn() -> Result<Epoch>,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut applying = self.applying.lock();
        let epoch = loop {
            let epoch = may()?;
            let mut earlier = applying.range((target, Epoch(0))..(target, epoch));
            if earlier.next().is_none() || planted(Bug::ApplyOldEpoch) {
                break epoch;
            }
            applying = self.ended.wait(applying);
        };
        *applying.entry((target, epoch)).or_default() += 1;
        drop(applying);
        let result = change();
        leave(&mut self.applying.lock(), (target, epoch));
        self.ended.notify_all();
        result
    }

    /// The earliest epoch of any change being applied to targets that count.
    pub(crate) fn oldest(&self, counts: impl Fn(TargetId) -> bool) -> Option<Epoch> {
        oldest(&self.applying.lock(), counts)
    }
}

/// Changes that this server orders or passes on, from before they are applied anywhere until it is
/// known, and noted, which copies have them.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    changes: Mutex<BTreeMap<(TargetId, Epoch), u32>>,
}

/// One such change, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    begun: &'a Begun,
    key: (TargetId, Epoch),
}

impl Begun {
    /// Begins a change under this epoch.
    pub(crate) fn begin(&self, target: TargetId, epoch: Epoch) -> UnderWay<'_> {
        let key = (target, epoch);
        *self.changes.lock().entry(key).or_default() += 1;
        UnderWay { begun: self, key }
    }

    /// The earliest epoch of any change under way on targets that count.
    pub(crate) fn oldest(&self, counts: impl Fn(TargetId) -> bool) -> Option<Epoch> {
        oldest(&self.changes.lock(), counts)
    }
}

impl UnderWay<'_> {
    /// The change's epoch.
    pub(crate) fn epoch(&self) -> Epoch {
        self.key.1
    }

    /// Continues the change under a later epoch, to which later gaps belong.
    pub(crate) fn go_on(&mut self, epoch: Epoch) {
        let key = (self.key.0, epoch);
        if key != self.key {
            let mut changes = self.begun.changes.lock();
            *changes.entry(key).or_default() += 1;
            leave(&mut changes, self.key);
            self.key = key;
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        leave(&mut self.begun.changes.lock(), self.key);
    }
}

fn oldest(
    under_way: &BTreeMap<(TargetId, Epoch), u32>,
    counts: impl Fn(TargetId) -> bool,
) -> Option<Epoch> {
    let of = under_way.keys().filter(|(target, _)| counts(*target));
    of.map(|(_, epoch)| *epoch).min()
}

fn leave(counts: &mut BTreeMap<(TargetId, Epoch), u32>, key: (TargetId, Epoch)) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use weir_types::ErrorKind;

    const TARGET: TargetId = TargetId(1);

    #[test]
    fn a_later_epoch_waits_for_what_was_begun_before() {
        crate::standing::planted::plant_if_asked();
        let turns = Arc::new(Turns::default());
        let ((began, has_begun), (go, may_go)) = (channel(), channel::<()>());
        let order = Arc::new(Mutex::new(Vec::new()));
        let old = {
            let (turns, order) = (turns.clone(), order.clone());
            weir_host::thread::spawn("old", move || {
                let change = || {
                    began.send(()).unwrap();
                    may_go.recv().unwrap();
                    order.lock().push("old");
                    Ok(())
                };
                turns.apply(TARGET, || Ok(Epoch(1)), change).unwrap();
            })
        };
        has_begun.recv().unwrap();
        // Others of the same epoch, and other targets, wait for nothing.
        turns.apply(TARGET, || Ok(Epoch(1)), || Ok(())).unwrap();
        turns.apply(TargetId(2), || Ok(Epoch(2)), || Ok(())).unwrap();
        let refused = turns.apply(TARGET, || Err(ErrorKind::NotCurrent.into()), || Ok(()));
        assert_eq!(refused.unwrap_err().kind, ErrorKind::NotCurrent);
        let (ended, has_ended) = channel();
        let new = {
            let (turns, order) = (turns.clone(), order.clone());
            weir_host::thread::spawn("new", move || {
                let change = || {
                    order.lock().push("new");
                    Ok(())
                };
                turns.apply(TARGET, || Ok(Epoch(2)), change).unwrap();
                ended.send(()).unwrap();
            })
        };
        // However long the first one takes.
        assert!(has_ended.recv_timeout(Duration::from_millis(500)).is_err(), "it did not wait");
        go.send(()).unwrap();
        old.unwrap().join().unwrap();
        new.unwrap().join().unwrap();
        assert_eq!(*order.lock(), ["old", "new"]);
        assert!(turns.applying.lock().is_empty());
    }

    #[test]
    fn the_earliest_epoch_of_what_is_under_way_is_known() {
        let begun = Begun::default();
        let mut first = begun.begin(TARGET, Epoch(1));
        let _other = begun.begin(TargetId(2), Epoch(3));
        assert_eq!(begun.oldest(|_| true), Some(Epoch(1)));
        assert_eq!(begun.oldest(|target| target != TARGET), Some(Epoch(3)), "it does not count");
        first.go_on(Epoch(4));
        assert_eq!(begun.oldest(|_| true), Some(Epoch(3)));
        drop(first);
        assert_eq!(begun.oldest(|_| true), Some(Epoch(3)));
    }
}
