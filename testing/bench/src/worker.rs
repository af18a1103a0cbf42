//! A load generator: a process that carries out one order after another, and keeps its memory and
//! connections warm in between.

use crate::failure::{Done, Failure};
use crate::files::{Aligned, Prepared, clock_ns, prepare};
use crate::library::Library;
use crate::order::{Answer, CALL_BYTES, Order, Place, Work};
use crate::posix::Posix;
use crate::raw;
use rustix::process::{Gid, Uid};
use rustix::time::ClockId;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

/// Serves orders from standard input until it ends.
pub fn run() -> Done {
    let mut lines = std::io::stdin().lock().lines();
    let mut next = || lines.next().and_then(Result::ok);
    let mut worker = Worker { session: None, buffer: Aligned::new(CALL_BYTES) };
    while let Some(line) = next() {
        let order = serde_json::from_str(&line).map_err(|e| Failure::other(e.to_string()))?;
        let (prepared, port) = match worker.prepare(order) {
            Ok(ready) => ready,
            Err(failure) => {
                say(&Answer::Failed(failure.to_string()))?;
                continue;
            }
        };
        say(&Answer::Ready { port })?;
        if next().is_none() {
            break;
        }
        let begin_ns = clock_ns(ClockId::Monotonic);
        let done = prepared(&mut worker.buffer);
        let end_ns = clock_ns(ClockId::Monotonic);
        say(&match done {
            Ok(work) => Answer::Finished(Work { begin_ns, end_ns, ..work }),
            Err(failure) => Answer::Failed(failure.to_string()),
        })?;
    }
    Ok(())
}

/// Makes this thread, the only one that works, another user in a directory whose parents that user
/// may not be able to enter. Returns the directory's path for that user.
fn become_user(user: u32, dir: &Path) -> Done<PathBuf> {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let failed = |e| Failure::system("becoming another user", e);
    let (root, uid, gid) = (Uid::from_raw(0), Uid::from_raw(user), Gid::from_raw(user));
    // The worker returns to it for the next order.
    if rustix::process::geteuid() == uid {
        set_thread_res_uid(uid, root, root).map_err(failed)?;
    }
    rustix::process::chdir(dir).map_err(|e| Failure::file(dir, e))?;
    set_thread_groups(&[gid]).map_err(failed)?;
    set_thread_res_gid(gid, gid, gid).map_err(failed)?;
    set_thread_res_uid(uid, uid, root).map_err(failed)?;
    Ok(PathBuf::from("."))
}

fn say(answer: &Answer) -> Done {
    let line = serde_json::to_string(answer).map_err(|e| Failure::other(e.to_string()))? + "\n";
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Failure::system("answering", e))
}

struct Worker {
    session: Option<(PathBuf, bool, Library)>,
    buffer: Aligned,
}

impl Worker {
    fn prepare(&mut self, order: Order) -> Done<(Prepared, Option<u16>)> {
        let place = match &order {
            Order::Read { place, .. }
            | Order::Rewrite { place, .. }
            | Order::Random { place, .. }
            | Order::Steady { place, .. }
            | Order::MakeDir { place, .. }
            | Order::Create { place, .. }
            | Order::Stat { place, .. }
            | Order::Unlink { place, .. } => place.clone(),
            Order::StreamSend { .. }
            | Order::StreamReceive { .. }
            | Order::PingServe { .. }
            | Order::PingAsk { .. } => return raw::prepare(order),
        };
        let prepared = match place {
            Place::Posix { root, cold, direct, user } => {
                let makes = matches!(order, Order::MakeDir { .. });
                let root = match user.filter(|_| !makes) {
                    Some(user) => become_user(user, &root)?,
                    None => root,
                };
                prepare(Posix { root, cold, direct, owner: user }, order)
            }
            Place::Library { credential, verify } => {
                prepare(self.session(credential, verify)?, order)
            }
        };
        Ok((prepared?, None))
    }

    fn session(&mut self, credential: PathBuf, verify: bool) -> Done<Library> {
        match &self.session {
            Some((file, verifies, session)) if *file == credential && *verifies == verify => {
                Ok(session.clone())
            }
            _ => {
                let session = Library::connect(&credential, verify)?;
                self.session = Some((credential, verify, session.clone()));
                Ok(session)
            }
        }
    }
}
