//! Snapshots of the whole store, a page at a time: for administrators, for backups and checks; and
//! for metadata servers that stand by and have no metadata yet.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::exports::Reading;
use weir_metastore::{Engine, MAX_KEY_BYTES, Snapshot};
use weir_types::codec::Bytes;
use weir_types::limits::MAX_BODY_BYTES;
use weir_types::{ClientId, Error, ErrorKind, Result};
use weir_wire::meta::{ExportMetaRequest, ExportPage, ExportPlace, ExportRecord};

/// Approximate bytes of keys and values in a page.
const PAGE_BYTES: usize = 256 << 10;
/// The most bytes that a record of a page takes besides its key and value.
const RECORD_OVERHEAD_BYTES: usize = 16;
/// Rows fetched at once.
const ROWS_AT_ONCE: usize = 256;
/// The most snapshots at a time: each keeps pages of the tree from being used again.
const MAX_SNAPSHOTS: usize = 4;

const _: () = assert!(2 * PAGE_BYTES + 2 * MAX_KEY_BYTES < MAX_BODY_BYTES);

impl<E: Engine> MetaMachine<E> {
    /// A page of a snapshot for `client`, an administrator, or for another metadata server. It is
    /// made if the request asks for that.
    pub(in crate::machine) fn export_meta(
        &mut self,
        client: Option<ClientId>,
        request: &ExportMetaRequest,
        now: Moment,
    ) -> Result<ExportPage> {
        if let Some(client) = client {
            self.require_administrator(client)?;
        }
        self.exports.forget_old(now.monotonic_ms);
        let number = match request.snapshot {
            0 => self.begin_export(client, now)?,
            number => number,
        };
        let reading = self.exports.readings.get_mut(&number).filter(|r| r.client == client);
        let Some(reading) = reading else {
            let message = "the snapshot of the metadata is gone (the server has restarted, or the \
                           export took too long): begin again";
            return Err(Error::new(ErrorKind::Stale, message));
        };
        reading.asked_ms = now.monotonic_ms;
        let (records, next) = page(&*reading.snapshot, &request.place)?;
        reading.finished |= next.is_none();
        let sequence = reading.snapshot.sequence().0;
        // The last page stays for a client that did not get it.
        Ok(ExportPage { snapshot: number, cluster: self.format.cluster, sequence, records, next })
    }

    fn begin_export(&mut self, client: Option<ClientId>, now: Moment) -> Result<u64> {
        let exports = &mut self.exports;
        if exports.readings.len() >= MAX_SNAPSHOTS {
            // One that was read to its end, or else the one that has waited
            // longest, is the likeliest to be left over.
            let age = |reading: &Reading| if reading.finished { 0 } else { reading.asked_ms };
            let idle = exports.readings.iter().min_by_key(|(_, reading)| age(reading));
            match idle.map(|(number, reading)| (*number, age(reading))) {
                Some((number, 0)) => drop(exports.readings.remove(&number)),
                Some((number, asked_ms)) if asked_ms + 5_000 < now.monotonic_ms => {
                    exports.readings.remove(&number);
                }
                _ => {
                    let message = format!("{MAX_SNAPSHOTS} snapshots are being read already");
                    return Err(Error::new(ErrorKind::Busy, message));
                }
            }
        }
        // Not durable, perhaps, but nothing that this process could take back.
        self.engine.flush()?;
        let snapshot = self.engine.snapshot()?;
        exports.last += 1;
        let (begun_ms, asked_ms) = (now.monotonic_ms, now.monotonic_ms);
        let reading = Reading { client, snapshot, begun_ms, asked_ms, finished: false };
        exports.readings.insert(exports.last, reading);
        Ok(exports.last)
    }
}

/// The records from a position on, as many as fit.
fn page(
    snapshot: &dyn Snapshot,
    place: &ExportPlace,
) -> Result<(Vec<ExportRecord>, Option<ExportPlace>)> {
    let end = [0xff; MAX_KEY_BYTES + 1];
    let mut start = place.key.0.clone();
    let mut skip = usize::try_from(place.offset).unwrap_or(usize::MAX);
    let mut room = PAGE_BYTES;
    let mut records = Vec::new();
    loop {
        let rows = snapshot.range(&start, &end, ROWS_AT_ONCE)?;
        let last_page = rows.len() < ROWS_AT_ONCE;
        for (key, row) in rows {
            if skip > 0 && *key != *place.key.0 {
                return Err(ErrorKind::InvalidArgument.into());
            }
            let value = row.value.get(skip..).ok_or(ErrorKind::InvalidArgument)?;
            let taken = value.len().min(room);
            let record =
                ExportRecord { key: Bytes(key.to_vec()), value: Bytes(value[..taken].to_vec()) };
            records.push(record);
            if taken < value.len() {
                let offset = (skip + taken) as u64;
                return Ok((records, Some(ExportPlace { key: Bytes(key.to_vec()), offset })));
            }
            skip = 0;
            room = room.saturating_sub(key.len() + taken + RECORD_OVERHEAD_BYTES);
            start = weir_metastore::key_after(&key).into();
            if room == 0 {
                return Ok((records, Some(ExportPlace { key: Bytes(start), offset: 0 })));
            }
        }
        if last_page {
            return Ok((records, None));
        }
    }
}
