//! Fills the metadata directory of a member with a snapshot of the metadata server that leads: of a
//! new member, and of one that was away for so long that the journal has been cut meanwhile.
//!
//! A connection that is lost ends the attempt, and the next one begins from the start. Each page is
//! under the MAC of its frame. Memory is bounded by a page and by what [`Reception`] keeps.

use crate::candidate::Standing;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::Signal;
use weir_metastore::{Embedded, Journal, MAX_REQUEST_BYTES, Reception, Sequence};
use weir_net::{Address, BlockingConn, Wait, host_name, random_bytes};
use weir_types::codec::Bytes;
use weir_types::{Error, ErrorKind, Result, SessionId};
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Hello, Identity};
use weir_wire::key::MasterKey;
use weir_wire::message::Request;
use weir_wire::meta::{ExportMetaRequest, ExportPlace, ExportRecord};
use weir_wire::{Header, Level};

/// Interval at which it is looked whether somebody leads who can be asked.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for a connection, and for a page.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is needed to receive a snapshot.
pub(crate) struct Receiver<'a> {
    pub dir: &'a Path,
    pub cluster: [u8; 16],
    pub master: &'a MasterKey,
    /// The lowest level of protection of the connection.
    pub protection: Level,
    pub journal: &'a Arc<dyn Journal>,
    pub member: &'a str,
    pub standing: &'a Standing<Embedded>,
    pub shutdown: &'a Signal,
}

/// Why an attempt has ended.
enum Ended {
    /// Shut down.
    Stopped,
    /// The other server: another attempt may do better.
    There(Error),
    /// This server.
    Here(Error),
}

impl Receiver<'_> {
    /// Tries until the directory is filled. `false`: shut down.
    ///
    /// Errors: those of the directory; `AuthFailed` if the master key is another one.
    pub fn run(&self) -> Result<bool> {
        tracing::info!(
            "the metadata directory {} waits for a snapshot of the metadata server that leads",
            self.dir.display()
        );
        let mut said = String::new();
        loop {
            match self.attempt() {
                Ok(sequence) => {
                    tracing::info!(
                        "received a snapshot of the metadata as of operation {sequence}"
                    );
                    return Ok(true);
                }
                Err(Ended::Stopped) => return Ok(false),
                Err(Ended::Here(error)) => return Err(error),
                Err(Ended::There(error)) if error.kind == ErrorKind::AuthFailed => {
                    return Err(error);
                }
                Err(Ended::There(error)) => {
                    let what = error.to_string();
                    if what != said {
                        tracing::warn!("no snapshot of the metadata yet: {what}; trying again");
                        said = what;
                    }
                }
            }
            match self.shutdown.wait(Some(LOOK_EVERY)) {
                Ok(false) => {}
                Ok(true) => return Ok(false),
                Err(e) => return Err(crate::run::broken(e)),
            }
        }
    }

    fn attempt(&self) -> Result<Sequence, Ended> {
        let leader = self.journal.leader().map_err(Ended::There)?;
        self.standing.set_leader(leader.clone());
        let Some(leader) = leader else {
            return Err(Ended::There(Error::new(ErrorKind::NotLeader, "no metadata server leads")));
        };
        let mut conn = self.connect(&leader).map_err(Ended::There)?;
        let place = ExportPlace { key: Bytes::default(), offset: 0 };
        let first = self.page(&mut conn, 0, place)?;
        let sequence = Sequence(first.sequence);
        let mut reception = Reception::begin(self.dir, sequence).map_err(Ended::Here)?;
        // From now on the journal is kept for this member.
        self.journal.report(self.member, sequence).map_err(Ended::There)?;
        let (snapshot, mut page) = (first.snapshot, first);
        let mut last: Option<ExportRecord> = None;
        loop {
            for record in std::mem::take(&mut page.records) {
                last = Some(take(&mut reception, last, record)?);
            }
            let Some(next) = page.next.take() else { break };
            if matches!(self.shutdown.wait(Some(Duration::ZERO)), Ok(true)) {
                return Err(Ended::Stopped);
            }
            page = self.page(&mut conn, snapshot, next)?;
            if page.sequence != sequence.0 {
                return Err(Ended::There(foreign("it has changed meanwhile")));
            }
        }
        if let Some(last) = last {
            reception.row(last.key.0.into(), last.value.0).map_err(Ended::Here)?;
        }
        reception.finish().map_err(Ended::Here)?;
        Ok(sequence)
    }

    fn page(
        &self,
        conn: &mut BlockingConn,
        snapshot: u64,
        place: ExportPlace,
    ) -> Result<weir_wire::meta::ExportPage, Ended> {
        let request = ExportMetaRequest { snapshot, place };
        let wait = Wait::until(clock::now() + PATIENCE);
        let header = Header::request(ExportMetaRequest::OP, conn.next_request_id());
        let asked = conn.send(header, &request, &[], &[], &wait);
        let page: weir_wire::meta::ExportPage =
            asked.and_then(|()| conn.recv_reply(&wait)).map_err(Ended::There)?;
        match page.cluster == self.cluster {
            true => Ok(page),
            false => Err(Ended::Here(foreign("it is of another cluster"))),
        }
    }

    /// Connects to the server that leads, by whichever of its addresses it can be reached.
    fn connect(&self, leader: &str) -> Result<BlockingConn> {
        let mut last = Error::from(ErrorKind::Unreachable);
        for name in leader.split(", ") {
            let hello = Hello {
                version: VERSION,
                identity: Identity::Metadata,
                nonce: random_bytes()?,
                session: SessionId(0),
                name: format!("metadata server {} on {}", self.member, host_name()),
                host: host_name(),
                protection: self.protection,
            };
            let wait = Wait::until(clock::now() + PATIENCE);
            let key = self.master.metadata();
            let connected = Address::parse(name)
                .and_then(|address| BlockingConn::connect(&address, key, &hello, &wait));
            match connected {
                Ok((conn, _)) => return Ok(conn),
                Err(error) => last = error.context(format!("metadata server {name}")),
            }
        }
        Err(last)
    }
}

/// Takes a record, or a piece of one: the last one is not complete before another one comes.
fn take(
    reception: &mut Reception,
    last: Option<ExportRecord>,
    record: ExportRecord,
) -> Result<ExportRecord, Ended> {
    match last {
        Some(mut last) if last.key == record.key => {
            last.value.0.extend_from_slice(&record.value.0);
            match last.value.0.len() <= MAX_REQUEST_BYTES {
                true => Ok(last),
                false => Err(Ended::There(foreign("a value has no end"))),
            }
        }
        Some(last) => {
            reception.row(last.key.0.into(), last.value.0).map_err(Ended::Here)?;
            Ok(record)
        }
        None => Ok(record),
    }
}

fn foreign(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the snapshot of the metadata is refused: {why}"))
}
