//! A distributed queue (River): blocks whose order does not matter go to any disk that can take
//! them. So each disk gets as many as it can write, and a slow disk delays no writer.
//!
//! A writer has a few credits for each disk. A batch of blocks costs one credit, which is returned
//! when the batch is durable. Each credit stands for a lane: a fragment on that disk, and a thread
//! that writes it. So blocks of one writer are in order within a fragment, and in no particular
//! order across fragments. Fragments are plain files of one directory: reading all of them yields
//! each block once.
//!
//! Invariants
//! - A block is in one fragment, as a whole.
//! - At most [`MAX_LANES`] batches, and [`MAX_BYTES`], are in memory, and one batch that is being
//!   filled.
//! - After a failure every later call returns it, and nothing more is sent.

use std::sync::Arc;
use weir_client::{Client, Context, CreateOptions, File};
use weir_host::fill_random;
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread::{JoinHandle, spawn};
use weir_policy::Credits;
use weir_types::{Error, ErrorKind, FileId, LayoutSpec, Result, TargetId};
use weir_wire::map::TargetState;

/// The most threads, and fragments, of one writer.
pub const MAX_LANES: usize = 64;
/// The largest batch, bytes.
pub const MAX_BATCH_BYTES: usize = 64 << 20;
/// The most bytes of all batches of a writer under way.
pub const MAX_BYTES: usize = 512 << 20;

/// Options of a writer.
#[derive(Clone, Debug)]
pub struct SpreadOptions {
    /// Fragments are called `part-NAME-0000` and so on. Writers of one directory need different
    /// names; the rank of a process in its job is a good one.
    pub name: String,
    /// Batches under way to each disk. They are fewer if all together would be more than
    /// [`MAX_LANES`] or [`MAX_BYTES`]. If there are more disks than that, some are left out at
    /// random.
    pub credits: u32,
    /// Blocks are gathered until they have this many bytes.
    pub batch_bytes: usize,
}

impl Default for SpreadOptions {
    fn default() -> Self {
        Self { name: "0".to_owned(), credits: 2, batch_bytes: 1 << 20 }
    }
}

/// The bytes written to one fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Name in the directory.
    pub name: String,
    /// Target of its first copy.
    pub target: TargetId,
    /// Length, bytes, all durable.
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
    /// Index among all targets.
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
    /// Lanes of each disk that wait for a batch.
    idle: Vec<Vec<usize>>,
    /// Buffers of written batches, for reuse, because fresh memory is expensive.
    buffers: Vec<Vec<u8>>,
    failed: Option<Error>,
}

impl SpreadOptions {
    /// # Errors
    /// `InvalidArgument`, with the allowed values.
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
    /// Makes a writer of fragments in a directory. Fragments have as many copies as new files
    /// there.
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

    /// Takes a block. Waits while no disk has a credit.
    ///
    /// # Errors
    /// Those of this block, or of an earlier one: some of the taken blocks are then not written.
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

    /// Waits until everything is durable.
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

    /// Takes a credit. Returns the disk, a waiting lane of it if there is one, and an empty buffer.
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

    /// Begins another fragment on a disk. Returns `None` if the disk takes no new files.
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

    /// Waits until everything sent is written or has failed. Returns the fragments.
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

/// All online targets, or `most` of them.
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

/// Reports a panic of a lane's thread, so that no thread waits for it.
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

/// A batch whose memory is lent to a write and reused afterwards.
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

    /// The next batch; `None` at the end.
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
