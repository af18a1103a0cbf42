//! Giving up a recalled lease, and reporting what was written.

use crate::context::Context;
use crate::core::news::Numbered;
use crate::counters::add;
use crate::state::{Call, Inner, OpenState, Writer};
use std::time::Duration;
use weir_host::clock;
use weir_host::plant::{Bug, planted};
use weir_types::{ErrorKind, FileId, Result, Retry};
use weir_wire::lease::{LeaseMode, LeaseRange, TO_THE_END};

/// Longest wait between two looks at the calls under way.
const SLICE: Duration = Duration::from_millis(50);
/// A longer wait is logged.
const LONG: Duration = Duration::from_secs(5);

impl Inner {
    /// Gives up a recalled lease. Returns false if written data could not be reported, so that the
    /// server must not believe it was.
    pub(crate) fn recall(&self, state: &OpenState, number: Numbered, wanted: &LeaseRange) -> bool {
        add(&self.counters.recalls, 1);
        let obeyed = self.give_back(state, number, wanted);
        if !state.is_unconfirmed() {
            return obeyed;
        }
        // What may come late of a write that failed is fenced off, and with it all
        // that this client writes to the file: it begins anew.
        let all = LeaseRange { file: state.id, start: 0, end: TO_THE_END, mode: LeaseMode::Write };
        self.give_back(state, number, &all)
    }

    fn give_back(&self, state: &OpenState, number: Numbered, wanted: &LeaseRange) -> bool {
        state.lease().begin_recall(wanted.start, wanted.end, wanted.mode);
        state.lease_changed.notify_all();
        wait_quiet(state);
        if wanted.mode == LeaseMode::Write
            && !planted(Bug::KeepPages)
            && let Some(upper) = &self.upper
        {
            loop {
                let ranges = state.lease().begin_round(clock::uptime());
                state.lease_changed.notify_all();
                for range in ranges {
                    upper.drop_pages(state.id, range.start, range.end);
                }
                if !state.lease().end_round() {
                    break;
                }
            }
        } else {
            state.lease().close();
        }
        wait_quiet(state);
        let ctx = Context::root();
        let call = Call { inner: self, file: state, ctx: &ctx };
        let reported =
            planted(Bug::AnswerBeforeFlush) || self.insist(state.id, || Writer::give_up(call));
        if wanted.mode == LeaseMode::Write && !planted(Bug::KeepPages) {
            state.reader().clear();
        }
        let mut lease = state.lease();
        lease.give_up();
        self.holdings.kept.lock().news.given_up(number, state.id);
        drop(lease);
        state.forget_reported();
        reported
    }

    /// Ends a recall after the server knows that the lease was given up, or has revoked it.
    pub(crate) fn end_recall(&self, state: &OpenState) {
        state.lease().end_recall();
        state.lease_changed.notify_all();
    }

    /// Reports size and time of writes. Returns false if that could not be done.
    pub(crate) fn report(&self, state: &OpenState) -> bool {
        let ctx = Context::root();
        let call = Call { inner: self, file: state, ctx: &ctx };
        self.insist(state.id, || Writer::report(call))
    }

    /// Repeats a report that another client waits for until the metadata server has received it, or
    /// has revoked the lease, so that there is nothing to report. Returns false if the server
    /// refuses it.
    fn insist(&self, file: FileId, tell: impl Fn() -> Result<()>) -> bool {
        for attempt in 0_u32.. {
            let Err(error) = tell() else { break };
            // The disk of the metadata server may get well.
            let ill =
                matches!(error.kind, ErrorKind::NoSpace | ErrorKind::ReadOnly | ErrorKind::Io);
            let refused = error.kind.retry() == Retry::Never && !ill;
            if refused || self.events.is_stopped() {
                tracing::error!("file {file}: could not report what was written: {error}");
                return false;
            }
            if attempt == 0 {
                tracing::warn!("file {file}: {error}; reporting what was written again");
            }
            (0..1 << attempt.min(4)).for_each(|_| self.events.pause());
        }
        true
    }
}

/// Waits for the calls that a recall has to wait for. Each ends within the request timeout.
fn wait_quiet(state: &OpenState) {
    let since = clock::uptime();
    let mut told = false;
    let mut lease = state.lease();
    while !lease.is_quiet() {
        if !told && clock::uptime().saturating_sub(since) >= LONG {
            told = true;
            tracing::warn!(
                "file {}: another client wants a lease back, and calls under way hold it for more \
                 than {LONG:?}: {}",
                state.id,
                lease.under_way()
            );
        }
        lease = state.lease_changed.wait_timeout(lease, SLICE);
    }
}
