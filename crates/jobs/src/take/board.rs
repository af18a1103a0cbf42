//! The shared record of a job's claims: extended attributes of a file. One attribute has the
//! claims, which one process at a time changes under a lock. Others have what stays the same: how
//! the files were cut into blocks.
//!
//! Attributes are stored by the metadata server: they change atomically, are set once however often
//! the request is sent, and do not wait for disks that are busy with the reads. The file is empty,
//! and no process has it open for writing, so no lease has to be given up when another process
//! joins.

use crate::blocks::Blocks;
use crate::claims::{Claims, MAX_RANKS, Stage};
use crate::take::{Input, TakeOptions};
use std::time::Duration;
use weir_client::{Client, Context, CreateOptions, File};
use weir_host::{clock, fill_random, thread};
use weir_types::checksum::crc32c;
use weir_types::limits::MAX_XATTR_BYTES;
use weir_types::{Decode, Encode, Error, ErrorKind, FileId, Result};
use weir_wire::Rights;
use weir_wire::lock::{LAST_BYTE, Lock, LockMode, LockWait};

/// Name of the attribute with the claims.
const CLAIMS: &[u8] = b"user.weir.claims";
/// Name, followed by a number, of the attributes with the division into blocks.
const BLOCKS: &str = "user.weir.blocks";
/// The longest division into blocks.
const MAX_BLOCKS_BYTES: usize = 64 * MAX_XATTR_BYTES;
/// Poll interval of a process that waits for others to end.
const LOOK: Duration = Duration::from_millis(100);

/// The claims of a job, for one of its processes.
pub(super) struct Board<'a> {
    client: &'a Client,
    ctx: Context,
    dir: FileId,
    name: String,
    rank: u32,
    file: File,
    owner: u64,
}

/// Result of the first look at the claims.
enum Found {
    /// This process has joined.
    Come(Blocks),
    /// This process has ended before and these others have not: it has to wait for the next round.
    Ended(Vec<u32>),
    /// All processes had ended, and the claims are gone.
    Gone,
}

impl<'a> Board<'a> {
    /// Joins the other processes of a job. The first one cuts the files into blocks.
    pub(super) fn join(
        client: &'a Client,
        ctx: &Context,
        files: &[(FileId, u64)],
        (inputs, options): (&[Input], &TakeOptions),
    ) -> Result<(Self, Blocks)> {
        let begun = clock::now();
        loop {
            let board = Self::open(client, ctx, options)?;
            let found = board.locked(|board| board.come(files, inputs, options))?;
            match found {
                Found::Come(blocks) => return Ok((board, blocks)),
                Found::Ended(others) if clock::elapsed(begun) >= options.wait => {
                    return Err(board.still_taking(&others));
                }
                Found::Ended(_) => thread::sleep(LOOK),
                Found::Gone => {}
            }
        }
    }

    fn open(client: &'a Client, ctx: &Context, options: &TakeOptions) -> Result<Self> {
        let TakeOptions { dir, job, rank, .. } = *options;
        let name = format!(".weir-take-{:016x}", job.0);
        let create =
            CreateOptions { mode: 0o600, rights: Rights::READ, ..CreateOptions::default() };
        let made = client.create(ctx, dir, name.as_bytes(), &create);
        let (file, _) = made.map_err(|error| error.context(&name))?;
        let mut owner = [0; 8];
        fill_random(&mut owner)?;
        let owner = u64::from_le_bytes(owner);
        Ok(Self { client, ctx: ctx.clone(), dir, name, rank, file, owner })
    }

    /// Changes the claims under the lock.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Claims) -> T) -> Result<T> {
        self.locked(|board| {
            let mut claims = board.claims()?.ok_or_else(|| board.gone())?;
            let before = claims.clone();
            let done = change(&mut claims);
            if claims != before {
                board.write(&claims)?;
            }
            Ok(done)
        })
    }

    /// Ends this process, which has found no more blocks. The last process removes the claims.
    pub(super) fn end(&self) -> Result<()> {
        self.locked(|board| {
            let mut claims = board.claims()?.ok_or_else(|| board.gone())?;
            claims.note(board.rank, Stage::Ended);
            board.write(&claims)?;
            if claims.not_ended().next().is_none() {
                board.remove()?;
            }
            Ok(())
        })
    }

    fn locked<T>(&self, body: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let mut lock = Lock {
            file: self.file.id(),
            owner: self.owner,
            flock: false,
            start: 0,
            last: LAST_BYTE,
            mode: LockMode::Exclusive,
            pid: std::process::id(),
        };
        self.client.set_lock(&self.ctx, &lock, LockWait::Yes)?;
        let done = body(self);
        let held = self.client.holds_locks(self.file.id(), self.owner);
        lock.mode = LockMode::Unlock;
        self.client.set_lock(&self.ctx, &lock, LockWait::No)?;
        if !held && done.is_ok() {
            let what = "its lock was lost while the metadata server could not be reached";
            return Err(Error::new(ErrorKind::Stale, what).context(&self.name));
        }
        done
    }

    fn write(&self, claims: &Claims) -> Result<()> {
        self.set(CLAIMS, &claims.to_value()?)
    }

    fn set(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let file = self.file.id();
        // Done late it would be written over what others have claimed by then.
        let holds = || self.client.holds_locks(file, self.owner);
        let set = self.client.set_xattr_at_last(&self.ctx, file, (name, value), holds);
        set.map_err(|error| error.context(&self.name))
    }

    /// The present value of an attribute; `None` if it is not set.
    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.client.get_xattr_anew(&self.ctx, self.file.id(), name) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind == ErrorKind::NoAttribute => Ok(None),
            Err(error) => Err(error.context(&self.name)),
        }
    }

    fn claims(&self) -> Result<Option<Claims>> {
        let value = self.get(CLAIMS)?;
        value.map(|value| Claims::of_value(&value).map_err(|e| self.broken(e))).transpose()
    }

    /// The division into blocks that the first process has recorded.
    fn blocks(&self, claims: &Claims) -> Result<Blocks> {
        let broken = || self.broken(Error::new(ErrorKind::Corrupt, "its blocks cannot be read"));
        let (len, check) = (claims.plan.0 as usize, claims.plan.1);
        if len > MAX_BLOCKS_BYTES {
            return Err(broken());
        }
        let mut plan = Vec::new();
        for part in 0..len.div_ceil(MAX_XATTR_BYTES) {
            plan.extend(self.get(&part_name(part))?.ok_or_else(broken)?);
        }
        let blocks = Blocks::from_bytes(&plan).map_err(|_| broken())?;
        let fits = crc32c(&plan) == check && claims.taken().len() == blocks.lanes().len();
        fits.then_some(blocks).ok_or_else(broken)
    }

    fn come(
        &self,
        files: &[(FileId, u64)],
        inputs: &[Input],
        options: &TakeOptions,
    ) -> Result<Found> {
        let Some(mut claims) = self.claims()? else {
            if !self.is_there()? {
                return Ok(Found::Gone);
            }
            return self.begin(files, inputs, options);
        };
        if claims.not_ended().next().is_none() {
            self.remove()?;
            return Ok(Found::Gone);
        }
        if claims.ranks != options.ranks {
            let what = format!("{} processes, and not {}", claims.ranks, options.ranks);
            return Err(self.differs(&what));
        }
        match claims.stage(self.rank) {
            Stage::New => {}
            Stage::Begun => return Err(self.begun_before()),
            Stage::Ended => return Ok(Found::Ended(claims.not_ended().collect())),
        }
        let blocks = self.blocks(&claims)?;
        if blocks.block_bytes() != options.block_bytes {
            let (theirs, own) = (blocks.block_bytes(), options.block_bytes);
            return Err(self.differs(&format!("blocks of {theirs} bytes, and not of {own}")));
        }
        if blocks.files() != files {
            return Err(self.differs(&other_files(blocks.files(), files, inputs)));
        }
        claims.note(self.rank, Stage::Begun);
        self.write(&claims)?;
        Ok(Found::Come(blocks))
    }

    /// Creates the claims, as the first process.
    fn begin(
        &self,
        files: &[(FileId, u64)],
        inputs: &[Input],
        options: &TakeOptions,
    ) -> Result<Found> {
        let layout = |(&(file, _), input): (&(FileId, u64), &Input)| {
            let opened = self.client.open(&self.ctx, file, Rights::READ);
            let (file, _) = opened.map_err(|e| e.context(&input.name))?;
            let layout = file.layout();
            file.close(&self.ctx)?;
            Ok(layout)
        };
        let layouts = files.iter().zip(inputs).map(layout).collect::<Result<Vec<_>>>()?;
        let blocks = Blocks::cut(files, &layouts, options.block_bytes)?;
        let plan = blocks.to_bytes();
        let mut claims = Claims::new(options.ranks, blocks.lanes().len(), &plan);
        claims.note(self.rank, Stage::Begun);
        if plan.len() > MAX_BLOCKS_BYTES {
            let what = "more columns of files than can be noted: take fewer at a time";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        // Should this process die here, the next one finds no claims.
        for (part, bytes) in plan.chunks(MAX_XATTR_BYTES).enumerate() {
            self.set(&part_name(part), bytes)?;
        }
        self.write(&claims)?;
        Ok(Found::Come(blocks))
    }

    /// Whether its name still leads to this file.
    fn is_there(&self) -> Result<bool> {
        match self.client.lookup(&self.ctx, self.dir, self.name.as_bytes()) {
            Ok(attr) => Ok(attr.file == self.file.id()),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the file. The lock must be held, so that no file that was made since is removed.
    fn remove(&self) -> Result<()> {
        if self.is_there()? {
            self.client.unlink(&self.ctx, self.dir, self.name.as_bytes())?;
        }
        Ok(())
    }

    fn broken(&self, error: Error) -> Error {
        error.context(format!("{}: if nobody uses it, remove it", self.name))
    }

    fn gone(&self) -> Error {
        let what = format!("{}: somebody has emptied it while it was used", self.name);
        Error::new(ErrorKind::Corrupt, what)
    }

    fn differs(&self, what: &str) -> Error {
        let what = format!("{}: the other processes of the job take {what}", self.name);
        Error::new(ErrorKind::InvalidArgument, what)
    }

    fn begun_before(&self) -> Error {
        let what = format!(
            "{}: process {} of a job of this name has begun before and has not ended: blocks that it \
             took are lost with it if it has died; use another name, or remove this file when none \
             of that job runs any more",
            self.name, self.rank
        );
        Error::new(ErrorKind::Exists, what)
    }

    fn still_taking(&self, others: &[u32]) -> Error {
        let some: Vec<String> = others.iter().take(8).map(u32::to_string).collect();
        let what = format!(
            "{}: others of the job have not ended what this process has: {}; give each round a \
             name of its own, or remove this file when none of that job runs any more",
            self.name,
            some.join(", ")
        );
        Error::new(ErrorKind::Exists, what)
    }
}

fn part_name(part: usize) -> Vec<u8> {
    format!("{BLOCKS}.{part}").into_bytes()
}

fn other_files(theirs: &[(FileId, u64)], own: &[(FileId, u64)], inputs: &[Input]) -> String {
    if theirs.len() != own.len() {
        return format!("{} files, and not {}", theirs.len(), own.len());
    }
    let mut all = theirs.iter().zip(own).zip(inputs).filter(|((theirs, own), _)| theirs != own);
    match all.next() {
        Some(((theirs, own), input)) if theirs.0 == own.0 => {
            format!("{} of {} bytes, and not of {}", input.name, theirs.1, own.1)
        }
        Some((_, input)) => format!("another file in the place of {}", input.name),
        None => "other files".to_owned(),
    }
}

/// Refuses impossible ranks.
pub(super) fn check_ranks(rank: u32, ranks: u32) -> Result<()> {
    if (1..=MAX_RANKS).contains(&ranks) && rank < ranks {
        return Ok(());
    }
    let what = format!("process {rank} of {ranks}: a job has 1 to {MAX_RANKS}, the first is 0");
    Err(Error::new(ErrorKind::InvalidArgument, what))
}
