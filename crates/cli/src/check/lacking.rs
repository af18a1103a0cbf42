//! Finds what the online copies lack because only offline copies have it. All targets are asked;
//! each column is judged by itself.

use crate::check::snapshot;
use crate::check::spool::Spool;
use crate::failure::Done;
use std::collections::{BTreeMap, BTreeSet};
use weir_client::losses::{self, Loss, States};
use weir_client::{Administrator, Client, Context};
use weir_types::limits::MAX_LACKING_OBJECTS;
use weir_types::{FileId, ObjectId, TargetId};

/// For each copy, the parts that its target does not serve.
#[derive(Default)]
pub struct Lacking(BTreeMap<(TargetId, ObjectId), Vec<(u64, u64)>>);

impl Lacking {
    /// Asks all online targets. Returns also what could not be asked.
    pub fn ask(admin: &Administrator, states: &States) -> (Self, Vec<String>) {
        let (mut all, mut not_asked) = (Self::default(), Vec::new());
        for (&target, _) in states.iter().filter(|(_, state)| state.is_online()) {
            if let Err(error) = all.ask_one(admin, target) {
                not_asked.push(format!("what target {target} lacks: {error}"));
            }
        }
        (all, not_asked)
    }

    fn ask_one(&mut self, admin: &Administrator, target: TargetId) -> weir_types::Result<()> {
        let mut next = Some(ObjectId::FIRST);
        while let Some(from) = next {
            let page = admin.list_lacking(target, from, MAX_LACKING_OBJECTS as u32)?;
            self.0.extend(page.objects.into_iter().map(|o| ((target, o.object), o.ranges)));
            next = page.next;
        }
        Ok(())
    }

    /// Returns the ranges of files that no online copy has.
    pub fn losses(
        &self,
        client: &Client,
        spool: &mut Spool,
        states: &States,
    ) -> Done<Vec<(FileId, Loss)>> {
        let columns = self.0.keys().map(|(_, o)| (o.file, o.segment, o.column));
        let columns: BTreeSet<_> = columns.collect();
        let files = columns.iter().map(|(file, ..)| *file).collect();
        let segments = snapshot::segments(spool, &files)?;
        let mut all = Vec::new();
        for (file, segment, column) in columns {
            let Some(segment) = segments.get(&(file, segment)) else { continue };
            let Ok(attr) = client.getattr(&Context::root(), file) else { continue };
            let of =
                |target, object| Ok(self.0.get(&(target, object)).cloned().unwrap_or_default());
            let losses = losses::column((file, attr.size), (segment, column), states, of)?;
            let within = losses.into_iter().filter(|loss| loss.bytes.is_some());
            all.extend(within.map(|loss| (file, loss)));
        }
        Ok(all)
    }
}
