//! Flushing a file that is closed, with fewer messages in a row.
//!
//! Of a new small file the metadata server is told the size while the bytes are on their way. `close`
//! returns when both are confirmed. Nobody else looks at the bytes before: this client has the lease
//! to write all of the file. If it dies, the file has zeros there, as if it had been asked for its
//! size before it had sent them.
//!
//! Which columns were written is told with the close, or by the background thread if the file stays
//! open.

use super::patient;
use crate::state::{Call, Failures, Writer};
use weir_types::Result;
use weir_wire::lease::LeaseMode;

/// The most bytes that are on their way while the metadata server is told: no server waits for
/// this client to go on sending.
const SMALL_BYTES: u64 = 128 << 10;

impl Writer {
    /// As [`Writer::flush`], for the last time.
    pub(crate) fn close(call: Call<'_>) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        call.file.writer().close_locked(call, Failures::tell_all)
    }

    /// As [`Writer::flush_and_keep_error`], for a descriptor that is closed.
    pub(crate) fn flush_for_close(call: Call<'_>) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        call.file.writer().close_locked(call, |failures| failures.show())
    }

    fn close_locked(
        &mut self,
        call: Call<'_>,
        tell: impl FnOnce(&mut Failures) -> Result<()>,
    ) -> Result<()> {
        self.between_calls();
        self.notice_loss(call);
        let with_data = self.may_tell_with_data(call);
        self.send_gathered(call);
        // What was not sent will not be there.
        let with_data = with_data && !self.in_flight.is_empty() && self.failures.show().is_ok();
        let told = with_data.then(|| self.tell_with_data(call));
        self.finish_all(call);
        let committed = match told {
            Some(told) => {
                self.take_back_ranges(call);
                told
            }
            None if self.has_only_columns(call) => Ok(()),
            None => self.commit(call),
        };
        // What was lost meanwhile was not there to be committed.
        self.notice_loss(call);
        self.note_clean(call);
        tell(&mut self.failures)?;
        committed
    }

    /// Whether this is a new small file that nobody else can read before its bytes are there.
    fn may_tell_with_data(&self, call: Call<'_>) -> bool {
        let file = call.file;
        (1..=SMALL_BYTES).contains(&self.held_bytes())
            && file.told_size() == 0
            && file.size() <= SMALL_BYTES
            && file.has_grown()
            && !file.is_graduated()
            && !file.is_unconfirmed()
            && self.told == file.server_runs()
            && file.has_leases(&call.inner.config)
            && file.lease().on_whole() == Some(LeaseMode::Write)
            && call.inner.may_leave_columns(file.id)
    }

    /// Reports size and time of bytes that are on their way, and that they leave no holes.
    fn tell_with_data(&mut self, call: Call<'_>) -> Result<()> {
        for sent in &self.in_flight {
            let range = (sent.op.range.start, sent.op.range.end);
            let ranges = if sent.fills.is_empty() { &[range][..] } else { &sent.fills[..] };
            ranges.iter().for_each(|range| self.filled.note(sent.op.generation, *range));
        }
        self.commit(call)
    }

    /// If bytes were refused that the metadata server was told of, or may have been, says that there
    /// may be holes. The program is told of the failure itself.
    fn take_back_ranges(&mut self, call: Call<'_>) {
        if self.failures.show().is_ok() {
            return;
        }
        self.filled.forget();
        if let Err(error) = self.note_sparse(call) {
            tracing::debug!("file {}: it may have holes that are not known: {error}", call.file.id);
        }
    }

    /// Whether nothing is to be told but written columns, and that may wait for the close.
    fn has_only_columns(&self, call: Call<'_>) -> bool {
        self.written.has_news()
            && self.written.fits()
            && !self.filled.has_news()
            && call.file.uncommitted().is_none()
            && self.told == call.file.server_runs()
            && call.inner.may_leave_columns(call.file.id)
    }
}
