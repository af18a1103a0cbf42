//! Orders of the metadata server to make copies from a target, and how far these, and the target's
//! own gaps, are.

use std::collections::BTreeMap;
use weir_host::sync::Mutex;
use weir_types::{Epoch, ObjectId, TargetId};
use weir_wire::peer::Fill;

/// The most orders to make copies that are remembered for one target.
const MAX_FILLS: usize = 4096;

/// Facts for the heartbeats about the work of one target.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of parts of this target's gaps that keep it from being online, which another copy
    /// can fill, and the epoch of that count.
    seen: Option<(Epoch, u64)>,
    /// The copies to make, at most [`MAX_FILLS`].
    fills: BTreeMap<(ObjectId, TargetId), Making>,
}

/// A copy to make.
struct Making {
    fill: Fill,
    stage: Stage,
}

/// Stage of a copy that is being made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing is noted yet of what it lacks.
    Ordered,
    /// It is noted that it lacks what this object has.
    Begun(ObjectId),
    /// It had everything at some time. Later gaps are noted for this object, if there is one.
    Filled(Option<ObjectId>),
}

impl Progress {
    /// Takes over the present orders of the metadata server. Earlier orders that are missing are
    /// done.
    pub(crate) fn ordered(&self, target: TargetId, fills: &[Fill]) {
        let mine = fills.iter().filter(|fill| fill.from == target).take(MAX_FILLS);
        let mut state = self.state.lock();
        let mut before = std::mem::take(&mut state.fills);
        state.fills = mine
            .map(|fill| {
                let key = (fill.object, fill.to);
                let known = before.remove(&key).filter(|making| making.fill == *fill);
                let new = || Making { fill: fill.clone(), stage: Stage::Ordered };
                (key, known.unwrap_or_else(new))
            })
            .collect();
    }

    /// Copies to make that are not filled yet.
    pub(crate) fn to_fill(&self) -> Vec<(Fill, Stage)> {
        let state = self.state.lock();
        let left = state.fills.values().filter(|m| !matches!(m.stage, Stage::Filled(_)));
        left.map(|making| (making.fill.clone(), making.stage)).collect()
    }

    /// Records the stage of a copy, if it is still ordered.
    pub(crate) fn has_come(&self, fill: &Fill, stage: Stage) {
        let mut state = self.state.lock();
        let making = state.fills.get_mut(&(fill.object, fill.to));
        if let Some(making) = making.filter(|making| making.fill == *fill) {
            making.stage = stage;
        }
    }

    /// Ends this target's part in a new copy, because another target orders the changes of the
    /// column, or the copy has gone. To be called before its gaps are forgotten here, which then
    /// mean nothing. If the copy is made from here again, that begins anew.
    pub(crate) fn is_not_ours(&self, object: ObjectId, to: TargetId) {
        let is_it = |making: &&mut Making| {
            let of = match making.stage {
                Stage::Ordered => None,
                Stage::Begun(of) => Some(of),
                Stage::Filled(of) => of,
            };
            making.fill.to == to && of == Some(object)
        };
        let mut state = self.state.lock();
        state.fills.values_mut().filter(is_it).for_each(|making| making.stage = Stage::Ordered);
    }

    /// Records that there are gaps which were not looked at yet.
    pub(crate) fn look_again(&self) {
        self.state.lock().seen = None;
    }

    /// Records how many parts of this target's gaps another copy has to fill under an epoch.
    pub(crate) fn saw(&self, epoch: Epoch, parts: u64) {
        self.state.lock().seen = Some((epoch, parts));
    }

    /// Copies that were made and have everything at this moment. `lacks` says whether the copy of
    /// an object on a target does not.
    pub(crate) fn filled(&self, lacks: impl Fn(ObjectId, TargetId) -> bool) -> Vec<Fill> {
        let whole = |making: &Making| match making.stage {
            Stage::Filled(from) => from.is_none_or(|from| !lacks(from, making.fill.to)),
            Stage::Ordered | Stage::Begun(_) => false,
        };
        let state = self.state.lock();
        state.fills.values().filter(|m| whole(m)).map(|making| making.fill.clone()).collect()
    }

    /// Number of parts of this target's gaps that another copy has to fill; `count` until the gaps
    /// were looked at under this epoch.
    pub(crate) fn to_be_filled(&self, count: u64, acting: Epoch) -> u64 {
        match self.state.lock().seen {
            // Without a map nobody knows who could fill them.
            Some((epoch, seen)) if epoch == acting && acting > Epoch(0) => seen,
            _ => count,
        }
    }
}
