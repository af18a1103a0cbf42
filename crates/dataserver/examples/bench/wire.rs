//! A minimal client of one thread.

use super::cluster::{Options, Processes, SERVERS, STRIPE_BYTES, UNIT_BYTES, master};
use std::io::{IoSlice, IoSliceMut};
use weir_layout::RegionList;
use weir_net::{Address, BlockingConn, Expected, Wait, random_bytes};
use weir_types::checksum::crc32c;
use weir_types::{
    ClientId, ColumnIndex, CopyIndex, FileId, Generation, JobId, KeyGeneration, ObjectId, Rank,
    RequestId, SegmentIndex, ServerId, SessionId, StripeMap, TargetId,
};
use weir_wire::data::{
    Access, ObjectLen, ReadFlags, ReadRequest, ServerStatus, StatusRequest, SyncRequest,
    WriteFlags, WriteRequest,
};
use weir_wire::handshake::{Attempt, Hello, Identity};
use weir_wire::ticket::Ticket;
use weir_wire::{Capability, Header, Op, Rights};

const BLOCK: usize = 4096;
const STRIPE: StripeMap = StripeMap { unit_bytes: UNIT_BYTES as u32, columns: SERVERS as u16 };

pub struct Client {
    conns: Vec<BlockingConn>,
    /// The next reply of each connection.
    expected: Vec<std::collections::VecDeque<RequestId>>,
    accesses: Vec<Access>,
    buffer: Vec<u8>,
    wait: Wait,
}

impl Client {
    pub fn connect(servers: &Processes, _options: &Options) -> Self {
        let wait = Wait::for_ms(600_000);
        let conns = servers.addresses.iter().enumerate().map(|(n, address)| {
            let ticket = Ticket {
                server: ServerId(n as u32),
                client: ClientId(1),
                session: SessionId(5),
                expires_unix_ms: u64::MAX,
                nonce: random_bytes().expect("random bytes"),
            };
            let key = ticket.key(&master().server(ServerId(n as u32), KeyGeneration(1)));
            let hello = Hello {
                version: weir_wire::frame::VERSION,
                session: ticket.session,
                identity: Identity::Ticket(ticket, Attempt { run: 1, number: 0 }),
                nonce: random_bytes().expect("random bytes"),
                name: "wire_bench".into(),
                host: String::new(),
                protection: weir_wire::Level::Args,
            };
            let address = Address::parse(address).expect("an address");
            BlockingConn::connect(&address, key, &hello, &wait).expect("a connection").0
        });
        let buffer = (0..STRIPE_BYTES as u32).map(|i| (i ^ (i >> 9)) as u8).collect();
        Self {
            conns: conns.collect(),
            expected: vec![Default::default(); SERVERS],
            accesses: (0..SERVERS as u32).map(access).collect(),
            buffer,
            wait,
        }
    }

    /// How many reads of all servers did not come from the page cache.
    pub fn disk_reads(&mut self) -> u64 {
        let mut reads = 0;
        for conn in &mut self.conns {
            let header = Header::request(Op::Status, conn.next_request_id());
            conn.send(header, &StatusRequest {}, &[], &[], &self.wait).expect("sent");
            let status: ServerStatus = conn.recv_reply(&self.wait).expect("a status");
            let by_disk = status.counters.iter().find(|(name, _)| name == "read.by_disk_thread");
            reads += by_disk.map_or(0, |(_, count)| *count);
        }
        reads
    }

    pub fn write_all(&mut self, bytes: u64) {
        self.rewrite(bytes, true);
    }

    /// Writes every stripe, one request to each server, one stripe ahead.
    pub fn rewrite(&mut self, bytes: u64, sync: bool) {
        let stripes = bytes / STRIPE_BYTES;
        for stripe in 0..=stripes {
            if stripe < stripes {
                (0..SERVERS).for_each(|n| self.send_write(n, stripe * STRIPE_BYTES));
            }
            if stripe > 0 {
                for conn in &mut self.conns {
                    let header = conn.recv_head(&self.wait).expect("a reply");
                    conn.reply::<ObjectLen>(&header).expect("success");
                }
            }
        }
        if sync {
            for (conn, access) in self.conns.iter_mut().zip(&self.accesses) {
                let header = Header::request(Op::Sync, conn.next_request_id());
                let request = SyncRequest { access: access.clone() };
                conn.send(header, &request, &[], &[], &self.wait).expect("sent");
            }
            for conn in &mut self.conns {
                conn.recv_reply::<()>(&self.wait).expect("synced");
            }
        }
    }

    fn send_write(&mut self, n: usize, offset: u64) {
        let units = self.buffer.chunks(UNIT_BYTES as usize).skip(n).step_by(SERVERS);
        let slices: Vec<_> = units.clone().map(IoSlice::new).collect();
        let checks: Vec<_> = units.flat_map(|u| u.chunks(BLOCK)).map(crc32c).collect();
        let request = WriteRequest {
            access: self.accesses[n].clone(),
            stripe: STRIPE,
            flags: WriteFlags::default(),
            regions: RegionList::contiguous(offset, STRIPE_BYTES).expect("a region"),
            staged: None,
        };
        let conn = &mut self.conns[n];
        let header = Header::request(Op::Write, conn.next_request_id());
        conn.send(header, &request, &checks, &slices, &self.wait).expect("sent");
    }

    /// Reads every stripe into the same buffer, `ahead` more on their way.
    pub fn read_all(&mut self, bytes: u64, verify: bool, ahead: u64) {
        let stripes = bytes / STRIPE_BYTES;
        for stripe in 0..stripes + ahead {
            if stripe < stripes {
                for n in 0..SERVERS {
                    let id = self.send_read(n, stripe * STRIPE_BYTES, STRIPE_BYTES, verify);
                    self.expected[n].push_back(id);
                }
            }
            if stripe >= ahead {
                (0..SERVERS).for_each(|n| self.receive(n, verify));
            }
        }
    }

    fn send_read(&mut self, n: usize, offset: u64, len: u64, verify: bool) -> RequestId {
        let request = ReadRequest {
            access: self.accesses[n].clone(),
            stripe: STRIPE,
            flags: ReadFlags { unchecked: !verify, ..ReadFlags::default() },
            regions: RegionList::contiguous(offset, len).expect("a region"),
        };
        let conn = &mut self.conns[n];
        let id = conn.next_request_id();
        let mut header = Header::request(Op::Read, id);
        (header.job, header.rank) = (JobId(1), Rank(0));
        conn.send(header, &request, &[], &[], &self.wait).expect("sent");
        id
    }

    /// Takes one server's part of a stripe, and verifies it.
    fn receive(&mut self, n: usize, verify: bool) {
        let share = STRIPE_BYTES as usize / SERVERS;
        let units = self.buffer.chunks_mut(UNIT_BYTES as usize).skip(n).step_by(SERVERS);
        let mut slices: Vec<_> = units.map(IoSliceMut::new).collect();
        let checks = if verify { share / BLOCK } else { 0 };
        let conn = &mut self.conns[n];
        // Replies come in order, unless one had to wait for the disk.
        let request_id = self.expected[n][0];
        let expected = Expected { request_id, meta_len: size_of::<u64>() + 4 * checks };
        let header = conn.recv_expected(expected, &mut slices, &self.wait).expect("a reply");
        if header.request_id != request_id {
            // All stripes go into the same buffer.
            let units = self.buffer.chunks_mut(UNIT_BYTES as usize).skip(n).step_by(SERVERS);
            let mut slices: Vec<_> = units.map(IoSliceMut::new).collect();
            conn.recv_payload(&header, &mut slices, &self.wait).expect("a payload");
        }
        self.expected[n].retain(|id| *id != header.request_id);
        assert_eq!(header.payload_len as usize, share);
        let mut sums = Vec::with_capacity(checks);
        conn.reply::<ObjectLen>(&header).expect("success");
        conn.checks(&header, &mut sums);
        if verify {
            let units = self.buffer.chunks(UNIT_BYTES as usize).skip(n).step_by(SERVERS);
            let blocks = units.flat_map(|u| u.chunks(BLOCK));
            assert!(blocks.zip(&sums).all(|(block, sum)| crc32c(block) == *sum));
        }
    }

    /// One random block, from whichever server has it.
    fn read_block(&mut self, offset: u64) {
        let n = (offset / UNIT_BYTES % SERVERS as u64) as usize;
        self.send_read(n, offset, BLOCK as u64, true);
        let block = &mut self.buffer[..BLOCK];
        let mut slices = [IoSliceMut::new(block)];
        let reply = self.conns[n].recv_data::<ObjectLen>(1, &mut slices, &self.wait);
        let reply = reply.expect("a reply");
        assert_eq!(reply.checks, [crc32c(&self.buffer[..BLOCK])]);
    }
}

/// Reads random blocks with one thread for each client, `reads` in all.
pub fn random(clients: &mut [Client], bytes: u64, reads: u64) {
    let each = reads / clients.len() as u64;
    std::thread::scope(|scope| {
        for (seed, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                for offset in super::raw::offsets(seed as u64, bytes).take(each as usize) {
                    client.read_block(offset);
                }
            });
        }
    });
}

fn access(n: u32) -> Access {
    let capability = Capability {
        file: FileId(9),
        session: SessionId(5),
        user: 0,
        rights: Rights::READ_WRITE,
        version: 1,
        key_generation: KeyGeneration(1),
        expires_unix_ms: u64::MAX,
    };
    let mac = capability.sign(TargetId(n), &master().target(TargetId(n), KeyGeneration(1)));
    let object = ObjectId {
        file: FileId(9),
        segment: SegmentIndex(0),
        column: ColumnIndex(n as u16),
        copy: CopyIndex(0),
    };
    let (target, copies, relay) = (TargetId(n), Vec::new(), None);
    Access { target, object, generation: Generation(0), capability, mac, copies, relay }
}
