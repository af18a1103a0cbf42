//! The metadata directory of a member, while no metadata server runs: takes the journal in, and
//! leaves it.

use crate::config::MetaServerConfig;
use crate::member::{Follower, open_member};
use std::sync::Arc;
use std::time::Duration;
use weir_host::{clock, thread};
use weir_metastore::{Engine, Journal};
use weir_types::{Error, ErrorKind, Result};

/// The longest to wait for the end of the lead of a server that was killed.
const VACANT_WITHIN: Duration = Duration::from_secs(15);
/// Interval at which it is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What is shown as the leader meanwhile.
const ADDRESS: &str = "a command that changes the metadata servers";

/// Takes everything that is in the journal into the metadata directory, durably, and removes a
/// member. No metadata server may lead. If `elsewhere`, the journal keeps in mind that the member was
/// removed: its directory is on another machine.
///
/// # Errors
/// `Busy` if one leads; `Stale` if the journal does not have everything that the directory lacks;
/// those of the journal and of the disk. It can be tried again.
pub fn take_in_journal(
    config: &MetaServerConfig,
    journal: &Arc<dyn Journal>,
    removed: &str,
    elsewhere: bool,
) -> Result<()> {
    take_in(config, journal, (removed, elsewhere), false)
}

/// As [`take_in_journal`], for the last other member. The journal ends, and from then on the directory
/// is that of a single metadata server.
///
/// # Errors
/// As [`take_in_journal`].
pub fn leave_journal(
    config: &MetaServerConfig,
    journal: &Arc<dyn Journal>,
    removed: &str,
) -> Result<()> {
    take_in(config, journal, (removed, true), true)
}

fn take_in(
    config: &MetaServerConfig,
    journal: &Arc<dyn Journal>,
    (removed, elsewhere): (&str, bool),
    leave: bool,
) -> Result<()> {
    let engine = open_member(config, Box::new(|| {}))?;
    let mut follower = Follower::new(engine, journal.clone(), String::new());
    let begun = journal.head()?.is_some();
    if begun {
        // Nobody appends meanwhile.
        let begin = clock::now();
        while journal.acquire(ADDRESS, None)?.is_none() {
            if clock::elapsed(begin) > VACANT_WITHIN {
                let leader = journal.leader()?.unwrap_or_default();
                let what = format!("a metadata server leads, at {leader}: stop it first");
                return Err(Error::new(ErrorKind::Busy, what));
            }
            thread::sleep(LOOK_EVERY);
        }
    }
    let taken: Result<()> = (|| {
        let log = journal.extent()?;
        let head = log.map(|log| log.head);
        follower.join(log)?;
        while head.is_some_and(|head| head > follower.engine.sequence()) {
            match follower.catch_up(head) {
                // There is more of it.
                Err(error) if error.kind == ErrorKind::TimedOut => journal.renew()?,
                other => other?,
            }
        }
        let engine = &mut follower.engine;
        engine.sync()?;
        if begun {
            journal.renew()?;
            match elsewhere {
                true => journal.remove(removed)?,
                false => journal.forget(removed)?,
            }
        }
        if leave {
            // Then the directory can do without the journal. Before, it could not.
            engine.mark_alone()?;
        }
        // Others cannot lead on it any more, with what this directory has.
        if leave && begun { journal.end() } else { Ok(()) }
    })();
    journal.resign();
    taken?;
    follower.engine.close()
}
