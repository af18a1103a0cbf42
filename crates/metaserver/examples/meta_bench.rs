//! How many operations a second the machine does on one thread on the embedded
//! engine, with a flush of the log after each (the worst case: a server
//! flushes once per turn).
//!
//! `cargo run --release -p weir-metaserver --example meta_bench -- [DIR] [COUNT]`

// Asks the operating system for what it wants.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::PathBuf;
use std::time::Instant;
use weir_metaserver::init::initialize;
use weir_metaserver::machine::{Answer, Peer};
use weir_metaserver::{MetaMachine, Moment, NewFileSystem, Times};
use weir_metastore::{Embedded, EmbeddedConfig};
use weir_types::{
    Caller, ClientId, Decode, DiskId, Encode, Error, FileId, FileKind, FsUsage, RequestId, Result,
    ServerId, SessionId, SlotId, SlotSequence, TargetId, Timestamp,
};
use weir_wire::handshake::{Hello, Identity};
use weir_wire::key::MasterKey;
use weir_wire::message::Request;
use weir_wire::meta::*;
use weir_wire::peer::{RegisterRequest, TargetReport};
use weir_wire::{Header, Key, Rights};

const TARGETS: u32 = 8;

struct Bench {
    machine: MetaMachine<Embedded>,
    now: Moment,
    session: SessionId,
    sequence: u64,
    caller: Caller,
}

impl Bench {
    fn start(dir: &std::path::Path) -> Result<Self> {
        let mut engine = Embedded::open(dir, EmbeddedConfig::default(), || {})?;
        let master = || MasterKey(Key::from_bytes([1; 32]));
        let now = Moment { monotonic_ms: 0, unix: Timestamp::new(1_700_000_000, 0) };
        initialize(&mut engine, &master(), &NewFileSystem::new([1; 16], ClientId(1)), now.unix)?;
        let mut machine = MetaMachine::open(engine, Times::default(), master(), [3; 32], now)?;
        let hello = Hello {
            version: 1,
            identity: Identity::Client(ClientId(1)),
            nonce: [0; 32],
            session: SessionId(0),
            name: "bench".into(),
            host: String::new(),
            protection: weir_wire::Level::Args,
        };
        let session = machine.welcome(&hello, now)?.session;
        let caller = Caller { uid: 0, gid: 0, groups: vec![4, 27] };
        let mut bench = Self { machine, now, session, sequence: 0, caller };
        let usage = FsUsage { total_bytes: 1 << 40, free_bytes: 1 << 40, ..FsUsage::default() };
        let targets = (1..=TARGETS)
            .map(|t| TargetReport {
                target: TargetId(t),
                usage,
                disk: DiskId::UNKNOWN,
                trouble: String::new(),
                removed: Vec::new(),
                gaps: Vec::new(),
                filled: Vec::new(),
                built: Vec::new(),
                unreachable: Vec::new(),
                distrusted: Vec::new(),
                hangs_ms: 0,
                given_up: false,
                work: weir_wire::targets::TargetWork::default(),
                own_key: weir_types::KeyGeneration(1),
                own_key_from: weir_types::KeyGeneration(0),
            })
            .collect();
        let register = RegisterRequest {
            host: "h".into(),
            domain: String::new(),
            tcp: "h:1".into(),
            unix: String::new(),
            first: true,
            runs: Vec::new(),
            targets,
        };
        bench.send::<RegisterRequest>(Peer::Server(ServerId(1)), &register.to_bytes())?;
        Ok(bench)
    }

    fn send<R: Request>(&mut self, peer: Peer, body: &[u8]) -> Result<Vec<u8>> {
        let header = Header::request(R::OP, RequestId(1));
        let answer = self.machine.on_request(peer, &header, body, self.now);
        self.machine.flush()?;
        match answer {
            Answer::Now(reply) | Answer::AfterSync(_, reply) if reply.status.is_none() => {
                Ok(reply.body)
            }
            Answer::Now(reply) | Answer::AfterSync(_, reply) => {
                Err(Error::from_bytes(&reply.body)?)
            }
            Answer::Parked(_) => {
                Err(Error::new(weir_types::ErrorKind::Busy, "there is no other client"))
            }
        }
    }

    fn ask<R: Request>(&mut self, request: &R, changes: bool) -> Result<Vec<u8>> {
        self.sequence += u64::from(changes);
        let (slot, sequence) = (SlotId(0), SlotSequence(self.sequence));
        let mutation = changes.then_some(MutationId { slot, sequence });
        let mut body = MetaPrefix { caller: self.caller.clone(), mutation }.to_bytes();
        request.encode(&mut body);
        self.send::<R>(Peer::Client(self.session), &body)
    }

    fn time(
        &mut self,
        what: &str,
        count: u64,
        mut step: impl FnMut(&mut Self, u64) -> Result<()>,
    ) -> Result<()> {
        let (start, cpu) = (Instant::now(), thread_cpu_us());
        let mut slowest_us = 0;
        for n in 0..count {
            let one = Instant::now();
            step(self, n)?;
            slowest_us = slowest_us.max(one.elapsed().as_micros());
            if n % 256 == 0 {
                self.machine.poll()?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let rate = count as f64 / seconds;
        // On a busy machine the time says little; what the thread used does.
        let cpu_us = (thread_cpu_us() - cpu) / count as f64;
        println!("{what:10} {rate:9.0}/s  {cpu_us:6.2} us CPU each  slowest {slowest_us} us");
        Ok(())
    }
}

/// Microseconds of CPU time that this thread has used.
fn thread_cpu_us() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as f64 * 1e6 + used.tv_nsec as f64 / 1e3
}

fn name(n: u64) -> weir_types::codec::Bytes {
    format!("file-{n:09}").as_bytes().into()
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from).join("weir-meta-bench");
    let count = args.next().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let _ = std::fs::remove_dir_all(&dir);
    let mut bench = Bench::start(&dir)?;
    let parent = FileId::ROOT;
    let mut files = Vec::new();
    bench.time("create", count, |b, n| {
        let request = CreateRequest {
            parent,
            name: name(n),
            kind: FileKind::File,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            exclusive: false,
            truncate: false,
            rights: Rights::READ_WRITE,
            layout: None,
        };
        let reply = b.ask(&request, true)?;
        files.push(OpenFile::from_bytes(&reply)?.attr.file);
        Ok(())
    })?;
    bench.time("close", count, |b, n| {
        b.ask(
            &CloseRequest { files: vec![files[n as usize]], unconfirmed: vec![], written: vec![] },
            false,
        )
        .map(drop)
    })?;
    bench.time("lookup", count, |b, n| {
        b.ask(&LookupRequest { parent, name: name(n * 7919 % count) }, false).map(drop)
    })?;
    bench.time("getattr", count, |b, n| {
        b.ask(&GetAttrRequest { file: files[(n * 7919 % count) as usize] }, false).map(drop)
    })?;
    bench.time("open", count, |b, n| {
        let file = files[(n * 7919 % count) as usize];
        b.ask(&OpenRequest { file, rights: Rights::READ }, false)?;
        b.ask(&CloseRequest { files: vec![file], unconfirmed: vec![], written: vec![] }, false)
            .map(drop)
    })?;
    bench.caller = Caller { uid: 1000, gid: 1000, groups: vec![4, 27] };
    bench.time("lookup/u", count, |b, n| {
        b.ask(&LookupRequest { parent, name: name(n * 7919 % count) }, false).map(drop)
    })?;
    bench.caller.uid = 0;
    let mut cookie = 0;
    bench.time("readdir+", count / 1000, |b, _| {
        let request = ReaddirRequest {
            last: 0,
            dir: parent,
            cookie,
            max_entries: 1000,
            attributes: true,
            layouts: false,
        };
        let page = DirPage::from_bytes(&b.ask(&request, false)?)?;
        cookie = page.entries.last().map_or(0, |e| e.cookie);
        Ok(())
    })?;
    bench.time("commit", count, |b, n| {
        let file = files[n as usize];
        let (generation, mtime) = (weir_types::Generation(1), Some(SetTime::Now));
        let commit = CommitSizeRequest {
            file,
            size: 4096,
            generation,
            mtime,
            written: Vec::new(),
            ranges: Vec::new(),
            sparse: false,
            durable: false,
        };
        b.ask(&commit, true).map(drop)
    })?;
    bench.time("unlink", count, |b, n| {
        b.ask(&UnlinkRequest { parent, name: name(n), hold: false }, true).map(drop)
    })?;
    bench.time("mkdir", count, |b, n| {
        b.ask(&MkdirRequest { parent, name: name(n), mode: 0o755, umask: 0 }, true).map(drop)
    })?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
