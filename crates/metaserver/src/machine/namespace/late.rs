//! Logs which requests wait long, and for which sessions.

use crate::leases::events::Ask;
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::waiting::Parked;
use weir_metastore::Engine;
use weir_wire::lease::{LeaseMode, TO_THE_END};

/// A longer wait is logged, once.
const LONG_MS: u64 = 5_000;
/// The most requests logged at each tick, and events of each. More say nothing new.
const MAX_TOLD: usize = 8;

impl<E: Engine> MetaMachine<E> {
    /// Logs requests that have begun to wait long since the last call.
    pub(super) fn tell_of_late(&mut self, now: Moment) {
        let until_ms = now.monotonic_ms.saturating_sub(LONG_MS);
        let from_ms = std::mem::replace(&mut self.leases.told_until_ms, until_ms);
        let late = self.leases.waiting.since(from_ms, until_ms);
        for parked in late.into_iter().take(MAX_TOLD) {
            tracing::warn!(
                session = parked.session.0,
                "{:?} of {:?} has waited for more than {} s for {}",
                parked.op,
                parked.files.iter().map(|file| file.0).collect::<Vec<_>>(),
                LONG_MS / 1000,
                self.waited_for(parked)
            );
        }
    }

    fn waited_for(&self, parked: &Parked) -> String {
        let events = &self.leases.events;
        let what = |&(who, number): &(_, u64)| {
            let ask = events.ask(who, number)?;
            Some(format!("session {} to {}", who.0, described(ask)))
        };
        let mut list: Vec<String> =
            parked.waits.events.iter().filter_map(what).take(MAX_TOLD).collect();
        if parked.waits.other && self.leases.grace.is_some() {
            list.push("clients to come back after the restart".into());
        } else if parked.waits.other {
            list.push("a request that came before".into());
        }
        list.join(", ")
    }
}

fn described(ask: &Ask) -> String {
    match *ask {
        Ask::Name(dir, _) => format!("forget a name in directory {dir}"),
        Ask::Attributes(file) | Ask::Removal(file) => format!("forget the attributes of {file}"),
        Ask::Report(file) => format!("report the size of {file}"),
        Ask::Recall(file, start, end, mode) => {
            let what = match mode {
                LeaseMode::Write => "give up",
                LeaseMode::Read => "write no more to",
            };
            let end = if end == TO_THE_END { "the end".into() } else { end.to_string() };
            format!("{what} {file} from {start} to {end}")
        }
    }
}
