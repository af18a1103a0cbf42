//! The log of a mount about its servers: that a server is unreachable and since when, what waits
//! for it, that it is back and after how long, and what was lost.

use crate::failure::{Done, Failure};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_client::{Event, Watch};

/// The interval of checks for events.
const TICK: Duration = Duration::from_millis(500);

/// Writes the log until this is dropped, including the events up to then.
pub struct MountLog {
    /// The writer's channel and thread; `None` after the drop.
    writer: Option<(Sender<()>, JoinHandle<()>)>,
}

impl MountLog {
    /// Starts the thread that writes the log.
    pub fn start(watch: Watch, timeout_ms: u64) -> Done<Self> {
        let (end, ended) = channel();
        let write = move || write(&watch, timeout_ms / 1000, &ended);
        let started = thread::Builder::new().name("mount-log".to_owned()).spawn(write);
        let thread = started.map_err(|e| Failure::new(format!("cannot start a thread: {e}")))?;
        Ok(Self { writer: Some((end, thread)) })
    }
}

impl Drop for MountLog {
    fn drop(&mut self) {
        let Some((end, thread)) = self.writer.take() else { return };
        drop(end);
        if thread.join().is_err() {
            tracing::error!("the thread that writes the mount's log panicked");
        }
    }
}

fn write(watch: &Watch, timeout_s: u64, ended: &Receiver<()>) {
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        write_news(watch, timeout_s);
    }
    // Above all, what the last flush lost: no program is told of it.
    write_news(watch, timeout_s);
}

/// Writes the events since the last call.
fn write_news(watch: &Watch, timeout_s: u64) {
    for event in watch.look() {
        let line = line(&event, timeout_s, SystemTime::now());
        match event {
            Event::Back { .. } => tracing::info!("{line}"),
            Event::DataLost { .. } => tracing::error!("{line}"),
            Event::Away { .. } | Event::SessionLost => tracing::warn!("{line}"),
        }
    }
}

/// An event as text.
fn line(event: &Event, timeout_s: u64, now: SystemTime) -> String {
    match event {
        Event::Away { peer, since, reason, waiting, failed, again } => {
            let still = if *again { "still " } else { "" };
            let (time, seconds) = (time_of_day(now - *since), since.as_secs());
            let calls =
                if *waiting == 1 { "1 call waits" } else { &format!("{waiting} calls wait") };
            let failed = match failed {
                0 => String::new(),
                n => format!("; {n} so far have failed"),
            };
            format!(
                "{peer} is {still}away since {time} UTC, for {seconds} s: {reason}; {calls} for \
                 it, {timeout_s} s each{failed}"
            )
        }
        Event::Back { peer, after, failed } => {
            let (seconds, tenths) = (after.as_secs(), after.subsec_millis() / 100);
            let failed = match failed {
                0 => "no call has failed".to_owned(),
                1 => "1 call has failed".to_owned(),
                n => format!("{n} calls have failed"),
            };
            format!("{peer} is back after {seconds}.{tenths} s; {failed} meanwhile")
        }
        Event::SessionLost => {
            "the metadata server has ended our session, because it had not heard \
            of us for too long: a new one begins; open files that still exist can be used"
                .to_owned()
        }
        Event::DataLost { file, error } => format!(
            "data was lost: bytes written to file {file} (`find MOUNTPOINT -inum {file}` has its \
             name) did not reach their server: {error}; the next write, fsync or close of the \
             file says so to its program"
        ),
    }
}

/// Hours, minutes and seconds in UTC, as in the times of the log.
fn time_of_day(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_client::Peer;

    #[test]
    fn lines_say_who_since_when_and_what_waits() {
        let now = UNIX_EPOCH + Duration::from_secs(86_400 + 3_723);
        let away = Event::Away {
            peer: Peer::Metadata,
            since: Duration::from_secs(3),
            reason: "it does not answer".to_owned(),
            waiting: 1,
            failed: 0,
            again: false,
        };
        assert_eq!(
            line(&away, 30, now),
            "the metadata server is away since 01:02:00 UTC, for 3 s: it does not answer; 1 call \
             waits for it, 30 s each"
        );
        let back =
            Event::Back { peer: Peer::Metadata, after: Duration::from_millis(4210), failed: 2 };
        assert_eq!(
            line(&back, 30, now),
            "the metadata server is back after 4.2 s; 2 calls have failed meanwhile"
        );
    }
}
