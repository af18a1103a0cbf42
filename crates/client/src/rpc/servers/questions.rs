//! Questions to targets for their load between requests, while files with several copies are read.
//! They ask how busy targets are that are not being read, and how far the readers of a job have
//! come there (1.21 of graduated declustering: progress is reported even when no data flows).
//! Targets are also asked when a file is opened: the first reads then know the speeds and find
//! connections. To servers of other files that are opened, a first connection is made.

use super::Servers;
use super::asking::{now, report};
use super::pool::DataConn;
use super::route::Detours;
use crate::core::pace::{Question, who};
use crate::counters::add;
use crate::rpc::session::MetaSession;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_net::Wait;
use weir_types::{Result, TargetId};
use weir_wire::data::LoadRequest;
use weir_wire::meta::TargetLoad;
use weir_wire::{Header, Request};

/// Timeout of a reply, milliseconds: it needs no disk.
const ANSWER_MS: u64 = 250;
/// Timeout of each connection, milliseconds.
const CONNECT_MS: u64 = 100;
/// Timeout for connecting to all targets of an opened file, milliseconds, because the readers of
/// jobs have to report their progress meanwhile.
const OPENED_MS: u64 = 200;
/// Number of connections to each server of a file that is going to be read. A reader soon has that
/// many requests at each server, and a connection that is made while data is on its way waits
/// behind that data.
const CONNECTIONS: usize = 4;
/// The most connections that wait to be made. Beyond it readers make theirs themselves.
const MAX_AHEAD: usize = 256;

impl Servers {
    /// Records that a file with several copies was opened. Returns whether the thread was not
    /// needed before.
    pub(crate) fn will_have_questions(&self) -> bool {
        !self.bell.wanted.swap(true, Relaxed)
    }

    /// Has the servers of an opened file connected to that were never connected to (0.22 of PVFS:
    /// clients connect to the I/O nodes when they open a file). Returns whether the thread was not
    /// needed before.
    pub(crate) fn will_be_connected(&self, targets: impl Iterator<Item = TargetId>) -> bool {
        let is_new = |target: &TargetId| {
            let pool = self.pool(*target);
            // As a rule a load alone.
            pool.is_some_and(|pool| !pool.met.load(Relaxed) && !pool.met.swap(true, Relaxed))
        };
        let new: Vec<_> = targets.filter(is_new).take(MAX_AHEAD).collect();
        if new.is_empty() {
            return false;
        }
        self.bell.opened.lock().extend(new);
        let was_wanted = self.has_questions();
        self.bell.wake();
        !was_wanted
    }

    /// Whether the thread is needed.
    pub(crate) fn has_questions(&self) -> bool {
        self.bell.wanted.load(Relaxed)
    }

    /// Asks until [`Servers::stop_asking`]. The body of the thread.
    pub(crate) fn ask_for_loads(&self, session: &MetaSession) {
        let mut ahead = VecDeque::new();
        loop {
            self.bell.rests.store(true, Relaxed);
            let (questions, next) = self.paces.lock().questions(now());
            let answered = self.ask_all(session, questions);
            if ahead.len() < MAX_AHEAD {
                (1..CONNECTIONS).for_each(|_| ahead.extend(&answered));
            }
            let has_ended = *self.bell.ended.lock();
            // One at a time: what is due to be asked meanwhile comes first.
            let opened = self.bell.opened.lock().pop_front();
            if let Some(target) = opened.filter(|_| !has_ended) {
                let wait = Wait::for_ms(CONNECT_MS);
                if let Err(error) = self.connect_ahead(session, target, 1, &wait) {
                    tracing::debug!("target {target}: {error}");
                }
                continue;
            }
            if let Some(target) = ahead.pop_front().filter(|_| !has_ended) {
                let wait = Wait::for_ms(CONNECT_MS);
                if let Err(error) = self.connect_ahead(session, target, CONNECTIONS, &wait) {
                    tracing::debug!("target {target}: {error}");
                    // One that hangs is not to keep questions waiting again and again.
                    ahead.clear();
                }
                continue;
            }
            let mut ended = self.bell.ended.lock();
            let is_told = || !self.bell.rests.load(Relaxed);
            if let (false, false, Some(next)) = (*ended, is_told(), next) {
                let time = Duration::from_micros(next.saturating_sub(now()).max(1));
                ended = self.bell.changed.wait_timeout(ended, time);
            }
            while !*ended && next.is_none() && self.bell.rests.load(Relaxed) {
                ended = self.bell.changed.wait(ended);
            }
            if *ended {
                return;
            }
        }
    }

    /// Ends the thread that asks.
    pub(crate) fn stop_asking(&self) {
        *self.bell.ended.lock() = true;
        self.bell.changed.notify_all();
    }

    /// Asks all questions, the urgent ones first. Returns targets of opened files that have
    /// replied.
    fn ask_all(&self, session: &MetaSession, questions: Vec<Question>) -> Vec<TargetId> {
        let (opened, read): (Vec<_>, Vec<_>) = questions.into_iter().partition(|of| of.opened);
        self.ask_some(session, read, || Wait::for_ms(CONNECT_MS));
        // What is opened may have copies on targets that are away; all of it is soon over.
        let all = Wait::for_ms(OPENED_MS);
        let is_there = |question: &Question| self.is_ready(question.target);
        let opened: Vec<_> = opened.into_iter().filter(is_there).collect();
        self.ask_some(session, opened, || Wait::for_ms(all.remaining().as_millis() as u64))
    }

    fn ask_some(
        &self,
        session: &MetaSession,
        of: Vec<Question>,
        connects: impl Fn() -> Wait,
    ) -> Vec<TargetId> {
        let mut answered = Vec::new();
        add(&self.counters.load_questions, of.len() as u64);
        let ask = |question: Question| (self.ask(session, &question, &connects()), question);
        let sent: Vec<_> = of.into_iter().map(ask).collect();
        // What one that does not answer has taken of it is not taken from the others.
        let wait = Wait::for_ms(ANSWER_MS);
        for (conn, question) in sent {
            let Question { target, opened, reader, .. } = question;
            let who = who(reader.as_deref());
            match conn.and_then(|conn| take_answer(conn, &wait)) {
                Ok(reply) if opened => {
                    let (us_per_mib, in_flight) = (reply.progress, reply.in_flight.into());
                    let load = TargetLoad { target, us_per_mib, in_flight };
                    self.paces.lock().opened(&load, now());
                    answered.push(target);
                }
                Ok(reply) => self.paces.lock().heard_answer(target, report(&reply, who), now()),
                Err(error) => {
                    tracing::debug!("load of target {target}: {error}");
                    self.paces.lock().unanswered(target, who, now());
                }
            }
        }
        answered
    }

    fn ask(&self, session: &MetaSession, question: &Question, wait: &Wait) -> Result<DataConn> {
        let Question { target, first, ref reader, .. } = *question;
        let mut conn = self.take_known(session, target, wait, &Detours::none())?;
        let mut header = Header::request(LoadRequest::OP, conn.conn.next_request_id());
        if let Some(reader) = reader {
            reader.sign(&mut header);
        }
        conn.conn.send(header, &LoadRequest { target, first }, &[], &[], wait)?;
        Ok(conn)
    }
}

fn take_answer(mut conn: DataConn, wait: &Wait) -> Result<Header> {
    let header = conn.conn.recv_answer(wait)?;
    let result = conn.conn.reply::<()>(&header);
    if conn.conn.is_usable() {
        conn.put_back();
    }
    result.map(|()| header)
}
