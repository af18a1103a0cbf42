//! Confirmed writes of several threads, made together: see [`Together`](crate::state::Together).

use super::{DIRECT_BYTES, Returns, patient};
use crate::state::{Call, Queued, Waiting, Write, Writer};
use weir_types::Result;

impl Writer {
    /// Whether a write may wait for others, and be made by their threads.
    pub(super) fn may_wait(call: Call<'_>, len: usize, returns: Returns) -> bool {
        let gathers = call.inner.config.write_behind_bytes > 0 && !call.file.is_graduated();
        gathers && returns == Returns::Confirmed && len < DIRECT_BYTES
    }

    /// Writes a copy of `data` with what other threads write meanwhile.
    pub(super) fn write_together(call: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let together = &call.file.together;
        if !together.was_led() {
            return Self::lead(call, (&patient(call.ctx), offset, data));
        }
        // Nobody waits for the copy.
        let own = (offset, data.to_vec());
        let most_bytes = call.inner.config.write_behind_bytes;
        match together.wait_for(patient(call.ctx), own, most_bytes) {
            None => Self::write_by_itself(call, (offset, data), Returns::Confirmed),
            Some(Queued::Made(result)) => result,
            Some(Queued::Leads(own)) => Self::lead(call, own.write()),
        }
    }

    /// Makes this thread's write, and those that have queued.
    fn lead(call: Call<'_>, own: Write<'_>) -> Result<()> {
        let mut turn = call.file.together.turn();
        let taken = turn.take();
        let all = std::iter::once(own).chain(taken.iter().map(Waiting::write));
        let mut results = Self::write_all(call, all);
        let own = results.remove(0);
        turn.results = results;
        own
    }

    /// Makes several writes, each in the name of its own caller. Returns the result of each.
    fn write_all<'a>(call: Call<'_>, writes: impl Iterator<Item = Write<'a>>) -> Vec<Result<()>> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = call.file.writer();
        writer.begin_turn();
        // Each in requests of its own, so that it fails only by itself; and so does what was there.
        writer.send_gathered(call);
        let mut made: Vec<(u64, Result<()>)> = Vec::new();
        for (ctx, offset, data) in writes {
            let call = Call { ctx, ..call };
            let taken = writer.prepare(call, offset, data.len());
            let taken = taken.and_then(|()| writer.take(call, offset, data));
            writer.send_gathered(call);
            made.push((writer.calls, taken));
        }
        let (committed, in_place) = writer.confirm(call);
        for (number, result) in made.iter_mut().filter(|(_, result)| result.is_ok()) {
            *result = writer.failures.of_call(*number).and_then(|()| committed.clone());
        }
        // That of an earlier write, which has returned.
        if let Some((_, result)) = made.iter_mut().find(|(_, result)| result.is_ok())
            && let Err(earlier) = writer.failures.tell_next()
        {
            *result = Err(earlier);
        }
        if in_place && made.iter().all(|(_, result)| result.is_ok()) {
            writer.only_time_is_left(call);
        }
        made.into_iter().map(|(_, result)| result).collect()
    }
}
