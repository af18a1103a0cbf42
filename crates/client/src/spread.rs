//! A distributed queue (River): blocks whose order does not matter go to whichever disk takes them,
//! so that each disk gets as much as it can write, and a slow one holds nobody up.
//!
//! A writer has a few credits for each disk. A batch of blocks costs one, which comes back when
//! the batch is durable. Each credit stands for a lane: a fragment on that disk, and a thread that
//! writes it. So blocks of one writer are in order within a fragment, and nothing is said of their order
//! across fragments. Fragments are plain files of one directory: who reads all of them has each block
//! once.
//!
//! Invariants
//! - A block is in one fragment, whole.
//! - No more than [`MAX_LANES`] batches, and [`MAX_BYTES`], are in memory, and one batch that is
//!   being filled.
//! - What has failed is told by every later call, and nothing is sent after it.

use crate::{Client, Context, CreateOptions, File};
use std::sync::Arc;
use weir_host::fill_random;
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread::{JoinHandle, spawn};
use weir_policy::Credits;
use weir_types::{Error, ErrorKind, FileId, LayoutSpec, Result, TargetId};
use weir_wire::map::TargetState;

/// Threads, and fragments, of one writer.
pub const MAX_LANES: usize = 64;
/// The largest batch.
pub const MAX_BATCH_BYTES: usize = 64 << 20;
/// All batches of a writer that are under way.
pub const MAX_BYTES: usize = 512 << 20;

/// How to spread.
#[derive(Clone, Debug)]
pub struct SpreadOptions {
    /// What fragments are called: `part-NAME-0000` and so on. Writers of one directory have
    /// different names: the rank of a process in its job is a good one.
    pub name: String,
    /// Batches under way to each disk; fewer where all of them would be more than [`MAX_LANES`] or
    /// [`MAX_BYTES`]. Where there are more disks than that, some are left out by chance.
    pub credits: u32,
    /// Blocks are gathered until they have so many bytes.
    pub batch_bytes: usize,
}

impl Default for SpreadOptions {
    fn default() -> Self {
        Self { name: "0".to_owned(), credits: 2, batch_bytes: 1 << 20 }
    }
}

/// What was written of one fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its name in the directory.
    pub name: String,
    /// The disk of its first copy.
    pub target: TargetId,
    /// All durable.
    pub bytes: u64,
}

/// A writer of blocks; see the top of the file.
pub struct Spread<'a> {
    client: &'a Client,
    ctx: Context,
    dir: FileId,
    name: String,
    layout: LayoutSpec,
    disks: Vec<Disk>,
    lanes: Vec<Lane>,
    batch: Vec<u8>,
    batch_bytes: usize,
    shared: Arc<Shared>,
}

struct Disk {
    target: TargetId,
    /// Its place among all targets.
    base: u32,
}

/// A fragment that has been begun.
struct Lane {
    fragment: Fragment,
    mailbox: Arc<Mailbox>,
    thread: JoinHandle,
}

#[derive(Default)]
struct Mailbox {
    mail: Mutex<Mail>,
    posted: Condvar,
}

#[derive(Default)]
enum Mail {
    #[default]
    None,
    Batch(Arc<Vec<u8>>),
    End,
}

struct Shared {
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    credits: Credits,
    /// Of each disk the lanes that wait for a batch.
    idle: Vec<Vec<usize>>,
    /// Written, and to be filled again: new memory is dear.
    buffers: Vec<Vec<u8>>,
    failed: Option<Error>,
}

impl SpreadOptions {
    /// # Errors
    /// `InvalidArgument`: what they may be.
    pub fn check(&self) -> Result<()> {
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidArgument, what));
        let Self { name, credits, batch_bytes } = self;
        if name.is_empty() || name.len() > 200 || name.contains(['/', '\0']) {
            return invalid(format!(
                "a name for fragments of 1 to 200 bytes without /, not {name:?}"
            ));
        }
        if !(1..=16).contains(credits) {
            return invalid(format!("1 to 16 batches under way to each disk, not {credits}"));
        }
        if !(4096..=MAX_BATCH_BYTES).contains(batch_bytes) {
            let most = MAX_BATCH_BYTES >> 20;
            return invalid(format!("batches of 4 KiB to {most} MiB, not {batch_bytes} bytes"));
        }
        Ok(())
    }
}

impl<'a> Spread<'a> {
    /// A writer of fragments in a directory, with as many copies as its new files have.
    ///
    /// # Errors
    /// `InvalidArgument`; `TargetMissing`: no target is online.
    pub fn new(
        client: &'a Client,
        ctx: &Context,
        dir: FileId,
        options: &SpreadOptions,
    ) -> Result<Self> {
        options.check()?;
        let LayoutSpec { copies, duplication, placement, .. } = client.default_layout(ctx, dir)?;
        let layout =
            LayoutSpec { copies, duplication, placement, count: 1, ..LayoutSpec::default() };
        let most = MAX_LANES.min(MAX_BYTES / options.batch_bytes);
        let disks = disks(client, most)?;
        let each = options.credits.min((most / disks.len()) as u32);
        let (credits, idle) = (Credits::new(disks.len(), each), vec![Vec::new(); disks.len()]);
        let state = State { credits, idle, buffers: Vec::new(), failed: None };
        Ok(Self {
            client,
            ctx: ctx.clone(),
            dir,
            name: options.name.clone(),
            layout,
            disks,
            lanes: Vec::new(),
            batch: Vec::new(),
            batch_bytes: options.batch_bytes,
            shared: Arc::new(Shared { state: Mutex::new(state), returned: Condvar::new() }),
        })
    }

    /// Takes a block. Waits as long as every disk has all that it may.
    ///
    /// # Errors
    /// Those of this block, or of one before it: some of what was taken is not written then.
    pub fn write(&mut self, block: &[u8]) -> Result<()> {
        if !self.batch.is_empty() && self.batch.len() + block.len() > self.batch_bytes {
            self.send()?;
        }
        self.batch.extend_from_slice(block);
        if self.batch.len() >= self.batch_bytes {
            self.send()?;
        }
        Ok(())
    }

    /// Ends when all is durable.
    ///
    /// # Errors
    /// As [`Spread::write`].
    pub fn finish(mut self) -> Result<Vec<Fragment>> {
        let sent = if self.batch.is_empty() { Ok(()) } else { self.send() };
        let fragments = self.end();
        sent?;
        if let Some(error) = &self.shared.state.lock().failed {
            return Err(error.clone());
        }
        // Names of files must not get out of a power cut without them.
        self.client.sync_metadata(&self.ctx)?;
        Ok(fragments)
    }

    fn send(&mut self) -> Result<()> {
        let sent = self.try_to_send();
        if let Err(error) = &sent {
            self.shared.state.lock().failed.get_or_insert_with(|| error.clone());
        }
        sent
    }

    fn try_to_send(&mut self) -> Result<()> {
        let (lane, buffer) = loop {
            let (disk, idle, buffer) = self.take_credit()?;
            if let Some(lane) = idle {
                break (lane, buffer);
            }
            match self.begin(disk)? {
                Some(lane) => break (lane, buffer),
                None => self.shared.state.lock().credits.close(disk),
            }
        };
        let batch = Arc::new(std::mem::replace(&mut self.batch, buffer));
        let Lane { fragment, mailbox, .. } = &mut self.lanes[lane];
        fragment.bytes += batch.len() as u64;
        *mailbox.mail.lock() = Mail::Batch(batch);
        mailbox.posted.notify_one();
        Ok(())
    }

    /// A disk, a lane of it that waits, if there is one, and an empty buffer.
    fn take_credit(&self) -> Result<(usize, Option<usize>, Vec<u8>)> {
        let random = random()?;
        let mut state = self.shared.state.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if !state.credits.any() {
                let what = "no target takes new files: they are full or drained (`weir targets`)";
                return Err(Error::new(ErrorKind::NoSpace, what));
            }
            if let Some(disk) = state.credits.take(random) {
                let buffer = state.buffers.pop().unwrap_or_default();
                return Ok((disk, state.idle[disk].pop(), buffer));
            }
            state = self.shared.returned.wait(state);
        }
    }

    /// One more fragment on a disk; `None`: that takes no new files.
    fn begin(&mut self, disk: usize) -> Result<Option<usize>> {
        let (number, Disk { target, base }) = (self.lanes.len(), &self.disks[disk]);
        let name = format!("part-{}-{number:04}", self.name);
        let options = CreateOptions {
            exclusive: true,
            layout: Some(LayoutSpec { base: Some(*base), ..self.layout.clone() }),
            ..CreateOptions::default()
        };
        let made = self.client.create(&self.ctx, self.dir, name.as_bytes(), &options);
        let (file, _) = made.map_err(|error| error.context(&name))?;
        let layout = file.layout();
        let first = layout.segments.first().and_then(|segment| segment.columns.first());
        if first.and_then(|column| column.targets.first()) != Some(target) {
            // It was given another one, which has fragments of its own.
            file.close(&self.ctx)?;
            self.client.unlink(&self.ctx, self.dir, name.as_bytes())?;
            return Ok(None);
        }
        let mailbox = Arc::new(Mailbox::default());
        let worker = Worker {
            number,
            disk,
            file,
            name: name.clone(),
            ctx: self.ctx.clone(),
            mailbox: mailbox.clone(),
            shared: self.shared.clone(),
        };
        let thread = spawn("weir-spread", move || worker.run()).map_err(Error::from)?;
        let fragment = Fragment { name, target: *target, bytes: 0 };
        self.lanes.push(Lane { fragment, mailbox, thread });
        Ok(Some(number))
    }

    /// Waits until all that was sent is written, or has failed; what was written.
    fn end(&mut self) -> Vec<Fragment> {
        let lanes = std::mem::take(&mut self.lanes);
        let mut state = self.shared.state.lock();
        while state.failed.is_none() && state.idle.iter().map(Vec::len).sum::<usize>() < lanes.len()
        {
            state = self.shared.returned.wait(state);
        }
        state.idle.iter_mut().for_each(Vec::clear);
        drop(state);
        for lane in &lanes {
            *lane.mailbox.mail.lock() = Mail::End;
            lane.mailbox.posted.notify_one();
        }
        let ended = |lane: Lane| {
            // One that panicked has said so.
            let _ = lane.thread.join();
            lane.fragment
        };
        lanes.into_iter().map(ended).collect()
    }
}

impl Drop for Spread<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// All that are online, or so many of them.
fn disks(client: &Client, most: usize) -> Result<Vec<Disk>> {
    let map = client.cluster_map()?;
    let mut targets: Vec<(TargetId, TargetState)> =
        map.targets().map(|(_, entry)| (entry.target, entry.state)).collect();
    // As the metadata server counts.
    targets.sort_by_key(|(target, _)| *target);
    let mut disks: Vec<Disk> = (0..)
        .zip(targets)
        .filter(|(_, (_, state))| *state == TargetState::Online)
        .map(|(base, (target, _))| Disk { target, base })
        .collect();
    if disks.is_empty() {
        let what = "no target is online: see `weir targets`";
        return Err(Error::new(ErrorKind::TargetMissing, what));
    }
    while disks.len() > most {
        disks.swap_remove((random()? % disks.len() as u64) as usize);
    }
    Ok(disks)
}

/// The thread of a lane.
struct Worker {
    number: usize,
    disk: usize,
    file: File,
    name: String,
    ctx: Context,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
}

/// Nobody waits for a thread that is no more.
struct TellOfPanic<'a>(&'a Shared);

impl Drop for TellOfPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = Error::new(ErrorKind::Internal, "a thread that writes has panicked");
            self.0.state.lock().failed.get_or_insert(error);
            self.0.returned.notify_all();
        }
    }
}

/// A batch that is given away while it is kept to be filled again.
struct Lent(Arc<Vec<u8>>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Worker {
    fn run(self) {
        let _told = TellOfPanic(&self.shared);
        let mut at = 0;
        while let Some(batch) = self.next() {
            let len = batch.len() as u64;
            let written = self
                .file
                .write_owned_confirmed(&self.ctx, at, Box::new(Lent(batch.clone())))
                .and_then(|()| self.file.sync(&self.ctx));
            at += len;
            let mut state = self.shared.state.lock();
            match written {
                Ok(()) => {
                    state.credits.give(self.disk);
                    state.idle[self.disk].push(self.number);
                    if let Ok(mut buffer) = Arc::try_unwrap(batch) {
                        buffer.clear();
                        state.buffers.push(buffer);
                    }
                }
                Err(error) => drop(state.failed.get_or_insert_with(|| error.context(&self.name))),
            }
            drop(state);
            self.shared.returned.notify_all();
        }
        if let Err(error) = self.file.close(&self.ctx) {
            let error = error.context(&self.name);
            self.shared.state.lock().failed.get_or_insert(error);
        }
    }

    /// `None`: there is no more.
    fn next(&self) -> Option<Arc<Vec<u8>>> {
        let mut mail = self.mailbox.mail.lock();
        loop {
            match std::mem::take(&mut *mail) {
                Mail::None => mail = self.mailbox.posted.wait(mail),
                Mail::Batch(batch) => return Some(batch),
                Mail::End => return None,
            }
        }
    }
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
