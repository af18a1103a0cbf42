//! Every call of a load goes through here: its duration is limited, and it may fail only when a
//! present fault excuses it.

use super::policy::Policy;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// Longer calls are logged.
const SLOW: Duration = Duration::from_secs(2);

/// What each thread waits for, and since when.
static UNDER_WAY: Mutex<BTreeMap<String, (String, Instant)>> = Mutex::new(BTreeMap::new());

/// The calls that are slow now.
pub fn stuck() -> String {
    let calls = UNDER_WAY.lock().unwrap();
    let slow = calls.values().filter(|(_, since)| since.elapsed() > SLOW);
    slow.map(|(what, since)| format!("for {:?} now: {what}\n", since.elapsed())).collect()
}

/// What a call is for: it decides how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Name,
}

/// Judges the calls for files with so many copies.
pub struct Judge {
    pub copies: u64,
    policy: PathBuf,
}

impl Judge {
    pub fn new(policy: PathBuf, copies: u64) -> Self {
        Self { copies, policy }
    }

    pub fn policy(&self) -> Policy {
        Policy::read(&self.policy)
    }

    /// Whether calls may fail now, whatever they are for.
    pub fn may_fail(&self) -> bool {
        let policy = self.policy();
        policy.may_fail >= self.copies || policy.full
    }

    /// See [`Policy::risks`].
    pub fn risks(&self) -> u64 {
        self.policy().risks(self.copies)
    }

    /// What the call returned; nothing if it failed, and that is excused. `risky`: what
    /// is written behind may be lost since an earlier failure.
    pub fn call<T>(
        &self,
        kind: Kind,
        what: &str,
        risky: bool,
        call: impl FnOnce() -> Result<T>,
    ) -> Option<T> {
        let (before, begin) = (self.policy(), Instant::now());
        let thread = format!("{:?}", std::thread::current().id());
        UNDER_WAY.lock().unwrap().insert(thread.clone(), (what.to_owned(), begin));
        let done = call();
        UNDER_WAY.lock().unwrap().remove(&thread);
        let (took, after) = (begin.elapsed(), self.policy());
        // What could fail it, or hold it up, may have come and gone meanwhile.
        let between = before.risks(self.copies) != after.risks(self.copies);
        let bound = match kind {
            Kind::Read | Kind::Write if self.copies > 1 && !between => {
                before.mirrored.max(after.mirrored)
            }
            _ => before.other.max(after.other),
        };
        let clock = clock();
        if took > SLOW {
            eprintln!("{clock} {what}: {took:?}");
        }
        assert!(took <= bound, "{clock} {what} took {took:?}, and not {bound:?} at the most");
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                let is_excused = |policy: &Policy| {
                    policy.may_fail >= self.copies
                        || (policy.full && kind == Kind::Write && is_full(&error))
                };
                let excused = risky || between || is_excused(&before) || is_excused(&after);
                assert!(excused, "{clock} {what} failed after {took:?}: {error}");
                eprintln!("{clock} {what}: {error} after {took:?} (expected)");
                None
            }
        }
    }
}

fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::StorageFull
}

/// The time of day, as logs have it.
pub fn clock() -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let (second, ms) = (now.as_secs() % 86_400, now.subsec_millis());
    format!("{:02}:{:02}:{:02}.{ms:03}", second / 3600, second / 60 % 60, second % 60)
}
