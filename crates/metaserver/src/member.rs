//! A metadata server that shares a journal with others: it follows, takes the lead when nobody has
//! it, serves as long as it leads, and ends when it has lost the lead.
//!
//! Invariants
//! - It serves only after it has taken the lead and then read the journal to its end.
//! - The journal is cut only up to what this server holds durably, and what every member that keeps
//!   up holds durably.

use crate::candidate::{Candidate, Standing};
use crate::config::{JournalConfig, MetaServerConfig, read_master_key};
use crate::disk_watch::DiskWatch;
use crate::history::{self, EMPTY_IT};
use crate::metrics::Observer;
use crate::news::News;
use crate::observed::{Heard, Members};
use crate::receive::Receiver;
use crate::run::{
    Notify, ROOM_EVERY, ReadyInfo, broken, check_cluster, has_format, in_directory, listen, net,
    require_format, room, start_machine, unix_ms, wait_for,
};
use crate::service::{Failure, MetaService};
use crate::timed::Timed;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_audit::Log;
use weir_host::clock;
use weir_host::net::Signal;
use weir_host::plant::{Bug, planted};
use weir_host::sync::Mutex;
use weir_host::thread::{self, JoinHandle};
use weir_metastore::{Begun, Embedded, Engine, Extent, Held, Journal, Progress, Sequence};
use weir_net::{LoopHandle, Server, random_bytes};
use weir_types::{Error, ErrorKind, Result};

/// Interval at which a standby reads the journal and looks whether somebody leads.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
/// Interval at which a leader renews its lead.
const RENEW_EVERY: Duration = Duration::from_millis(500);
/// Number of looks between two reports of what a standby holds.
const LOOKS_PER_REPORT: u32 = 5;
/// Number of looks after which it reports though it holds nothing new.
const LOOKS_PER_SIGN: u32 = 25;
/// The most reads of the journal in one look; then it looks again.
const READS_PER_LOOK: usize = 256;
/// With more bytes than this in the journal it is cut, though a member does not have them yet. That
/// member then needs a snapshot.
const MAX_JOURNAL_BYTES: u64 = 256 << 20;
/// So many bytes stay in any case: for members that begin with a snapshot, and for those that keep up
/// and have not yet read what is newest.
const KEPT_JOURNAL_BYTES: u64 = 64 << 20;
/// The most times at which the size of the journal is remembered.
const MAX_MARKS: usize = 1024;
/// Bytes of earlier leaders between two places where the journal may be cut.
const OLD_MARK_BYTES: u64 = 1 << 20;

/// Serves as a member of several metadata servers with one journal, which `open` gives for the
/// cluster with this id, until `shutdown` is raised. `on_ready` is called once, when connections
/// are accepted, whether or not this server leads.
///
/// # Errors
/// As [`crate::run()`]. When another server has taken the lead the error says so: start this one
/// again, and it follows. `Corrupt` if the directory and the journal do not fit together.
pub fn run_member(
    config: MetaServerConfig,
    open: impl FnOnce(&JournalConfig, [u8; 16]) -> Result<Arc<dyn Journal>>,
    shutdown: &Signal,
    observer: Arc<Observer>,
    on_ready: impl FnOnce(ReadyInfo),
) -> Result<()> {
    config.check()?;
    let Some(journal_config) = config.journal.clone() else {
        return Err(Error::new(ErrorKind::InvalidArgument, "`[journal]` is missing"));
    };
    let master = read_master_key(&config.master_key_file)?;
    let listeners = listen(&config)?;
    let addresses: Vec<String> = listeners.iter().map(|l| l.address().to_string()).collect();
    let handle: Arc<OnceLock<LoopHandle<News>>> = Arc::default();
    let open_engine = || {
        let engine = open_member(&config, notifier(&handle))?;
        let cluster = check_cluster(&config, &engine, &master)?;
        Ok::<_, Error>((engine, cluster))
    };
    // What is wrong with a directory is told before anybody counts on this server.
    let (mut opened, cluster) = match has_format(&config.dir)? {
        true => open_engine().map(|(engine, cluster)| (Some(engine), cluster))?,
        false => (None, config.cluster.ok_or_else(|| unnamed(&config))?),
    };
    let journal = open(&journal_config, cluster)?;
    let journal: Arc<dyn Journal> = Arc::new(Timed { journal, observer: observer.clone() });

    let standing = Arc::new(Standing::default());
    let mut candidate = Some(Candidate::new(standing.clone()));
    let running = Server::start(net(&config), listeners, |loop_handle, _| {
        handle.get_or_init(|| loop_handle);
        candidate.take().ok_or_else(|| Error::from(ErrorKind::Internal))
    })?;
    tracing::info!("metadata server stands by for {} on {addresses:?}", config.dir.display());
    on_ready(ReadyInfo { addresses: addresses.clone() });

    let member = journal_config.member.clone();
    let receiver = Receiver {
        dir: &config.dir,
        cluster,
        master: &master,
        protection: config.protection,
        journal: &journal,
        member: &member,
        standing: &standing,
        shutdown,
    };
    let elected = loop {
        let engine = match opened.take() {
            Some(engine) => engine,
            None if receiver.run().map_err(|e| in_directory(&config, e))? => open_engine()?.0,
            None => return running.stop(),
        };
        let follower = Follower::new(engine, journal.clone(), member.clone());
        let (standing, observer) = (standing.clone(), Some(observer.clone()));
        let follower = Follower { standing, observer, ..follower };
        match follower.follow(&addresses.join(", "), shutdown) {
            Err(error) if error.kind == ErrorKind::Stale => tracing::warn!("{error}"),
            Err(error) => return Err(error),
            Ok(None) => return running.stop(),
            Ok(Some(elected)) => break elected,
        }
    };
    let Elected { engine, term, renewing } = elected;
    let (progress, begun) = (engine.progress(), engine.sequence());

    let start = clock::now();
    let mut machine = start_machine(&config, engine, master, start)?;
    machine.set_term(term);
    let audit = Arc::new(Log::open(&config.dir, config.audit_records));
    machine.set_audit(audit.clone());
    // Whatever was acknowledged is durable in the journal, whichever machine restarts.
    machine.set_boot(u32::from_be_bytes([cluster[0], cluster[1], cluster[2], cluster[3]]));
    let wake = Signal::new().map_err(|e| broken(e).context("make an eventfd"))?;
    let failure = Arc::new(Failure::new(wake));
    standing.set_next(MetaService::new(machine, start, observer.clone(), failure.clone()));
    if let Some(handle) = handle.get() {
        handle.post(News::Lead);
        observer.begin(handle.clone(), running.counters().clone());
    }
    tracing::info!(
        term,
        "metadata server leads, and serves {} on {addresses:?}",
        config.dir.display()
    );
    let dir = config.dir.clone();
    let (journal_of, member) = (journal.clone(), journal_config.member);
    let upkeep = Upkeep { journal: journal_of, member, progress, begun, term };
    let marks = Mutex::new((Marks::default(), Heard::default()));
    let written = audit.clone();
    let look = move || {
        written.write(&dir, unix_ms());
        let mut seen = marks.lock();
        let (marks, heard) = &mut *seen;
        match (upkeep.run(marks, heard), handle.get()) {
            (Ok(members), Some(handle)) => handle.post(News::Members(members)),
            (Ok(_), None) => {}
            (Err(error), _) => tracing::warn!("the journal was not cut: {error}"),
        }
        if let Some((handle, room)) = handle.get().zip(room(&dir)) {
            handle.post(News::Room(room));
        }
    };
    look();
    let waited = wait_for([shutdown, failure.wake()], ROOM_EVERY, look);
    observer.end();
    let stopped = running.stop();
    audit.finish(&config.dir);
    // Not before the loop has ended, which might reply.
    renewing.end();
    journal.resign();
    waited.map_err(|e| broken(e).context("wait for the end"))?;
    match failure.take() {
        Some(error) => Err(error),
        None => stopped,
    }
}

fn unnamed(config: &MetaServerConfig) -> Error {
    let what = format!(
        "{} is no metadata directory: correct the path; or, for a new member, name the `cluster`",
        config.dir.display()
    );
    Error::new(ErrorKind::NotFound, what)
}

fn notifier(handle: &Arc<OnceLock<LoopHandle<News>>>) -> Notify {
    let posted = handle.clone();
    Box::new(move || {
        if let Some(handle) = posted.get() {
            handle.post(News::Engine);
        }
    })
}

pub(crate) fn open_member(config: &MetaServerConfig, notify: Notify) -> Result<Embedded> {
    require_format(config)?;
    Embedded::open_member(&config.dir, config.engine(), notify).map_err(|e| in_directory(config, e))
}

/// A server that has the lead, and has read all of the journal.
struct Elected {
    engine: Embedded,
    term: u64,
    renewing: Renewing,
}

/// Follows the journal.
pub(crate) struct Follower {
    pub engine: Embedded,
    journal: Arc<dyn Journal>,
    member: String,
    standing: Arc<Standing<Embedded>>,
    observer: Option<Arc<Observer>>,
    /// What it has reported that it holds.
    reported: Option<Sequence>,
    looks: u32,
}

impl Follower {
    pub fn new(engine: Embedded, journal: Arc<dyn Journal>, member: String) -> Self {
        let (standing, observer, reported) = (Arc::default(), None, None);
        Self { engine, journal, member, standing, observer, reported, looks: 0 }
    }

    /// Follows until nobody else leads, and takes the lead. `None`: shut down.
    fn follow(mut self, address: &str, shutdown: &Signal) -> Result<Option<Elected>> {
        let mut answers = true;
        loop {
            match self.look(address) {
                Ok(Some((term, renewing))) => {
                    if let Some(observer) = &self.observer {
                        observer.stand_by(None);
                    }
                    let Self { mut engine, journal, .. } = self;
                    let led = engine.lead(journal.clone()).and_then(|()| id_of(&*journal));
                    let led = led.and_then(|id| history::follow(&mut engine, id));
                    if let Err(error) = led {
                        renewing.end();
                        journal.resign();
                        // It stands by once more.
                        let kind =
                            if is_passing(&error) { ErrorKind::NotLeader } else { error.kind };
                        return Err(Error { kind, ..error });
                    }
                    return Ok(Some(Elected { engine, term, renewing }));
                }
                Ok(None) => answers = true,
                Err(error) if is_passing(&error) => {
                    if std::mem::take(&mut answers) {
                        tracing::warn!("metadata server cannot follow: {error}; trying again");
                    }
                }
                Err(error) => return Err(error),
            }
            match shutdown.wait(Some(FOLLOW_EVERY)) {
                Ok(false) => {}
                Ok(true) => {
                    self.engine.close()?;
                    return Ok(None);
                }
                Err(e) => return Err(broken(e)),
            }
        }
    }

    /// Reads what is new, and takes the lead if nobody has it.
    fn look(&mut self, address: &str) -> Result<Option<(u64, Renewing)>> {
        let log = self.journal.extent()?;
        let head = log.map(|log| log.head);
        self.require_member()?;
        self.join(log)?;
        self.catch_up(head)?;
        self.engine.poll()?;
        self.tell(head);
        self.report()?;
        let leader = self.journal.leader()?;
        let vacant = leader.is_none();
        self.standing.set_leader(leader);
        if vacant { self.stand(log, address) } else { Ok(None) }
    }

    /// Fails if this member was removed. Only who leads removes one: so a leader that asks is told.
    fn require_member(&self) -> Result<()> {
        if !self.journal.removed()?.contains(&self.member) {
            return Ok(());
        }
        let what = format!(
            "{} is no metadata server of the cluster any more: it was removed on the first machine; \
             `weir meta remove` on this machine, too, deletes what is left of it",
            self.member
        );
        Err(Error::new(ErrorKind::NotPermitted, what))
    }

    /// Makes sure that the directory fits to the journal, and marks it.
    pub fn join(&mut self, log: Option<Extent>) -> Result<()> {
        let here = self.engine.sequence();
        match log {
            Some(Extent { head, .. }) if head < here => Err(unfit(format!(
                "the metadata directory has operations up to {here}, and the journal only up to \
                 {head}: it has served without the journal; {EMPTY_IT}"
            ))),
            Some(Extent { begun, .. }) => {
                let is_replicated = self.engine.is_replicated()?;
                // The numbers are all that tells of a journal without an id.
                if let Some(begun) = begun {
                    history::check(&self.engine, begun, is_replicated)?;
                }
                if is_replicated { Ok(()) } else { self.engine.mark_replicated() }
            }
            None if self.engine.is_replicated()? => Err(unfit(format!(
                "the journal is gone from etcd: if it is lost, find the member whose directory has \
                 the most operations (this one has {here}), remove the file `replicated` from that \
                 directory, empty those of the others, and start that member first"
            ))),
            None => Ok(()),
        }
    }

    /// Takes in the journal, at least up to `head`.
    pub fn catch_up(&mut self, head: Option<Sequence>) -> Result<()> {
        for _ in 0..READS_PER_LOOK {
            let batches = self.journal.read(self.engine.sequence())?;
            if batches.is_empty() {
                if head.is_some_and(|head| head > self.engine.sequence()) {
                    let what = format!(
                        "the metadata directory has operations up to {}, and later ones were cut \
                         from the journal: it needs a snapshot of the metadata server that leads",
                        self.engine.sequence()
                    );
                    return Err(Error::new(ErrorKind::Stale, what));
                }
                return Ok(());
            }
            for batch in &batches {
                self.engine.follow(batch)?;
            }
            self.engine.flush()?;
            self.engine.poll()?;
            if head.is_some_and(|head| head <= self.engine.sequence()) {
                return Ok(());
            }
        }
        // There is more: it is no time to lead.
        Err(Error::new(ErrorKind::TimedOut, "this metadata server is behind"))
    }

    /// Tells the metrics what this server lacks.
    fn tell(&self, head: Option<Sequence>) {
        let behind = head.unwrap_or_default().0.saturating_sub(self.engine.sequence().0);
        if let Some(observer) = &self.observer {
            observer.stand_by(Some(behind));
        }
    }

    /// Reports what this member holds, at first and then from time to time.
    fn report(&mut self) -> Result<()> {
        let durable = self.engine.progress().durable();
        self.looks = self.looks.wrapping_add(1);
        let due = self.reported.is_none() || self.looks.is_multiple_of(LOOKS_PER_REPORT);
        let sign = self.looks.is_multiple_of(LOOKS_PER_SIGN);
        if sign || due && self.reported != Some(durable) {
            self.journal.report(&self.member, durable)?;
            self.reported = Some(durable);
        }
        Ok(())
    }

    /// Tries to take the lead, and then reads the rest of the journal.
    fn stand(&mut self, log: Option<Extent>, address: &str) -> Result<Option<(u64, Renewing)>> {
        let begin = match log {
            Some(Extent { begun: Some(_), .. }) => None,
            _ => Some(Begun {
                id: random_bytes()?,
                at: self.engine.sequence(),
                from: history::of(&self.engine)?,
                adopted: log.is_some(),
            }),
        };
        if begin.is_some() {
            // All of it is durable before others count on it.
            self.engine.sync()?;
        }
        let Some(term) = self.journal.acquire(address, begin)? else { return Ok(None) };
        let disk = DiskWatch::start(self.engine.path().to_owned())?;
        let renewing = Renewing::start(self.journal.clone(), disk)?;
        let mut complete = || {
            self.require_member()?;
            let log = self.journal.extent()?;
            self.join(log)?;
            self.catch_up(log.map(|log| log.head))
        };
        if let Err(error) = complete() {
            renewing.end();
            self.journal.resign();
            return Err(error);
        }
        Ok(Some((term, renewing)))
    }
}

/// The id of the journal, after this server has taken the lead.
fn id_of(journal: &dyn Journal) -> Result<[u8; 16]> {
    let begun = journal.extent()?.and_then(|log| log.begun);
    // Begun by an older version in this moment: it gets an id at the next attempt.
    let none = || Error::new(ErrorKind::NotLeader, "the journal in etcd has no id yet");
    Ok(begun.ok_or_else(none)?.id)
}

/// Whether an error of the journal, or of the disk, may be gone a moment later.
fn is_passing(error: &Error) -> bool {
    use ErrorKind::{NoSpace, NotLeader, TimedOut, Unreachable};
    matches!(error.kind, NoSpace | NotLeader | TimedOut | Unreachable)
}

fn unfit(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

/// A thread that renews the lead, as long as the disk of the metadata answers.
struct Renewing {
    stop: Signal,
    thread: JoinHandle,
}

impl Renewing {
    fn start(journal: Arc<dyn Journal>, disk: DiskWatch) -> Result<Self> {
        let stop = Signal::new().map_err(broken)?;
        let stopped = stop.clone();
        let renew = move || {
            while matches!(stopped.wait(Some(RENEW_EVERY)), Ok(false)) {
                if let Some(hangs) = disk.hangs() {
                    tracing::error!(
                        "the disk of the metadata has not answered for {} s: this metadata server \
                         gives the lead up",
                        hangs.as_secs()
                    );
                    journal.resign();
                    return;
                }
                if let Err(error) = journal.renew() {
                    tracing::warn!("the lead of the metadata servers was not renewed: {error}");
                }
                if journal.check().is_err() {
                    return;
                }
            }
        };
        let thread = thread::spawn("meta-lead", renew).map_err(broken)?;
        Ok(Self { stop, thread })
    }

    fn end(self) {
        self.stop.raise();
        // One that panics has nothing more to say.
        let _ = self.thread.join();
    }
}

/// Reports what the leader holds, cuts the journal, and looks what the others hold.
struct Upkeep {
    journal: Arc<dyn Journal>,
    member: String,
    progress: Progress,
    /// The end of the journal when this server began to lead.
    begun: Sequence,
    term: u64,
}

/// What had been appended when the leader held so much durably.
#[derive(Default)]
struct Marks {
    marks: VecDeque<(Sequence, u64)>,
    cut: Sequence,
    /// Bytes up to the cut.
    cut_bytes: u64,
    /// Bytes that earlier leaders have left in the journal. `None`: not known yet.
    left: Option<u64>,
}

impl Upkeep {
    fn run(&self, marks: &mut Marks, heard: &mut Heard) -> Result<Members> {
        let left = marks.left.map_or_else(|| self.look_back(marks), Ok)?;
        let (durable, bytes) = (self.progress.durable(), left + self.progress.published_bytes());
        self.journal.report(&self.member, durable)?;
        let members = self.journal.members()?;
        let cut = marks.next_cut((durable, bytes), &members);
        if cut > marks.cut {
            self.journal.cut(cut)?;
            marks.cut_to(cut);
        }
        self.journal.compact()?;
        let head = self.journal.head()?.unwrap_or_default();
        let others = heard.look(&self.member, head, &members);
        Ok(Members { term: self.term, leader: self.member.clone(), head, others })
    }
}

impl Upkeep {
    /// Reads what earlier leaders have left in the journal. Returns the number of its bytes.
    fn look_back(&self, marks: &mut Marks) -> Result<u64> {
        let (mut after, mut found) = (Sequence::ZERO, Marks { left: Some(0), ..Marks::default() });
        while after < self.begun {
            let batches = self.journal.read(after)?;
            let Some(last) = batches.last() else { break };
            after = last.last;
            let old = batches.iter().filter(|batch| batch.last <= self.begun);
            old.for_each(|batch| found.add_old(batch.last, batch.records.len() as u64));
        }
        *marks = found;
        Ok(marks.left.unwrap_or_default())
    }
}

impl Marks {
    /// Adds a batch of an earlier leader.
    fn add_old(&mut self, last: Sequence, bytes: u64) {
        let all = self.left.unwrap_or_default() + bytes;
        self.left = Some(all);
        let marked = self.marks.back().map_or(0, |(_, bytes)| *bytes);
        if self.marks.len() < MAX_MARKS / 2 && all - marked >= OLD_MARK_BYTES {
            self.marks.push_back((last, all));
        }
    }

    /// Up to where the journal is to be cut, when the leader holds so much durably.
    fn next_cut(&mut self, now: (Sequence, u64), members: &[Held]) -> Sequence {
        if self.marks.len() < MAX_MARKS && self.marks.back().is_none_or(|last| last.0 < now.0) {
            self.marks.push_back(now);
        }
        if planted(Bug::CutJournalEarly) {
            return now.0;
        }
        let is_old = |(_, bytes): &&(Sequence, u64)| bytes + KEPT_JOURNAL_BYTES <= now.1;
        let old = self.marks.iter().rev().find(is_old).map_or(self.cut, |(at, _)| *at);
        let old = old.min(now.0);
        let slowest = members.iter().min_by_key(|held| held.upto);
        if now.1 - self.cut_bytes > MAX_JOURNAL_BYTES
            && let Some(slowest) = slowest.filter(|held| held.upto < old)
        {
            tracing::warn!(
                member = slowest.member,
                holds = slowest.upto.0,
                "the journal is too large to wait for a metadata server, which needs a snapshot"
            );
            return old;
        }
        slowest.map_or(old, |held| old.min(held.upto))
    }

    fn cut_to(&mut self, cut: Sequence) {
        self.cut = cut;
        while let Some((_, bytes)) = self.marks.front().filter(|(at, _)| *at <= cut) {
            self.cut_bytes = *bytes;
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_cut_to_the_slowest_member_unless_it_grows_too_large_and_keeps_its_end() {
        let member =
            |name: &str, holds| Held { member: name.to_owned(), upto: Sequence(holds), stamp: 0 };
        let mut marks = Marks::default();
        let all = [member("a", 10), member("b", 7)];
        assert_eq!(marks.next_cut((Sequence(10), 1000), &all), Sequence(0), "all of it is new");
        assert_eq!(marks.next_cut((Sequence(20), KEPT_JOURNAL_BYTES), &all), Sequence(0));
        assert_eq!(marks.next_cut((Sequence(30), KEPT_JOURNAL_BYTES + 1000), &all), Sequence(7));
        marks.cut_to(Sequence(7));
        assert_eq!(marks.cut_bytes, 0, "nothing is known of what is before");
        let all = [member("a", 40), member("b", 25)];
        assert_eq!(marks.next_cut((Sequence(40), 2 * KEPT_JOURNAL_BYTES), &all), Sequence(20));
        marks.cut_to(Sequence(20));
        assert_eq!(marks.cut_bytes, KEPT_JOURNAL_BYTES);
        let most = KEPT_JOURNAL_BYTES + MAX_JOURNAL_BYTES;
        assert_eq!(marks.next_cut((Sequence(50), most), &all), Sequence(25));
        assert_eq!(marks.next_cut((Sequence(51), most + 1), &all), Sequence(40), "but not its end");
    }

    #[test]
    fn what_earlier_leaders_have_left_counts_from_the_beginning() {
        let mut marks = Marks { left: Some(0), ..Marks::default() };
        let batch = KEPT_JOURNAL_BYTES / 8;
        (1..=24).for_each(|n| marks.add_old(Sequence(n), batch));
        assert_eq!(marks.left, Some(3 * KEPT_JOURNAL_BYTES));
        let holds = |upto| [Held { member: "a".to_owned(), upto: Sequence(upto), stamp: 0 }];
        let now = (Sequence(24), 3 * KEPT_JOURNAL_BYTES);
        assert_eq!(marks.next_cut(now, &holds(24)), Sequence(16));
        assert_eq!(marks.next_cut(now, &holds(3)), Sequence(3));
    }
}
