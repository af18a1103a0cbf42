//! What a cluster gives, by reading temporary files of it.

use crate::failure::{Done, Failure};
use crate::layouts::whereabouts::Found;
use std::sync::Barrier;
use std::time::Instant;
use weir_client::{Client, ClientConfig, Context, CreateOptions, File};
use weir_layout::advice::{Order, Stripes, Workload};
use weir_types::{Error, FileId, FileKind, LayoutSpec};
use weir_wire::Rights;

/// Bytes of the file that [`Trial::measure`] reads.
const MEASURE_BYTES: u64 = 32 << 20;
/// Bytes of one call of it.
const LONG_CALL_BYTES: usize = 4 << 20;
/// Bytes of one call that measures the round trip.
const SHORT_CALL_BYTES: usize = 4 << 10;
/// The number of these calls.
const SHORT_CALLS: usize = 101;
/// No request costs less, however exactly it is measured.
const LEAST_REQUEST_S: f64 = 10e-6;
/// The most readers that a trial runs in one process.
const MAX_READERS: u32 = 64;
/// Calls of one reader at most; a long file of short records is read in part.
const MAX_CALLS: u64 = 20_000;

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Bytes per second of one reader from all targets.
    pub link_bytes_per_s: f64,
    /// Bytes per second of one target.
    pub disk_bytes_per_s: f64,
    /// Seconds from a small request to its reply: the median.
    pub round_trip_s: f64,
    /// Seconds by which a call is longer that takes two requests instead of one: the medians. `None`
    /// if there is one target.
    pub request_s: Option<f64>,
}

/// Bytes of the buffers of all readers at most.
const MAX_BUFFERS_BYTES: u64 = 1 << 30;

/// Checks that a trial is possible.
///
/// # Errors
/// Too many readers for one process, calls that need too much memory or do not fit in the file.
pub fn check(readers: u32, call_bytes: u64, file_bytes: u64) -> Done {
    if readers > MAX_READERS {
        return Err(Failure::new(format!("--try runs at most {MAX_READERS} readers")));
    }
    if u64::from(readers) * call_bytes > MAX_BUFFERS_BYTES {
        return Err(Failure::new("--try: the calls of all readers have at most 1 GiB together"));
    }
    if file_bytes < call_bytes {
        return Err(Failure::new("--size: smaller than one call"));
    }
    Ok(())
}

/// Makes temporary files in one directory, and reads them.
pub struct Trial<'a> {
    found: &'a Found,
    directory: FileId,
}

/// A file without a name: it is gone when it is closed, also if this process is killed.
struct Temporary {
    file: File,
    id: FileId,
}

impl<'a> Trial<'a> {
    /// In the directory that was found, or in that of the file that was found.
    pub fn new(found: &'a Found, kind: FileKind) -> Done<Self> {
        let directory = match kind {
            FileKind::Directory => found.attr()?.file,
            _ => found.tree.parent(&found.path)?.0,
        };
        Ok(Self { found, directory })
    }

    /// Where the temporary files are made.
    pub fn directory(&self) -> FileId {
        self.directory
    }

    /// Bytes that a reader of this program has under way.
    pub fn read_ahead_bytes(&self) -> u64 {
        self.found.tree.client.config().read_ahead_bytes
    }

    fn failed(&self) -> impl Fn(Error) -> Failure + use<'_> {
        self.found.tree.about(&self.found.path)
    }

    fn context(&self) -> &Context {
        &self.found.tree.context
    }

    /// A session of its own, as another process has it.
    fn connect(&self, no_cache: bool) -> Result<Client, Error> {
        let config: ClientConfig = self.found.tree.client.config().clone();
        Client::connect(if no_cache { config.without_cache() } else { config })
    }

    fn make(&self, stripes: Stripes, bytes: u64) -> Done<Temporary> {
        let layout = LayoutSpec {
            stripe_unit_bytes: u32::try_from(stripes.unit_bytes).unwrap_or(u32::MAX),
            count: stripes.count,
            ..LayoutSpec::default()
        };
        let options =
            CreateOptions { mode: 0o600, layout: Some(layout), ..CreateOptions::default() };
        let made = self.found.tree.client.create_unnamed(self.context(), self.directory, &options);
        let (file, attr) = made.map_err(self.failed())?;
        let piece: Vec<u8> = (0..LONG_CALL_BYTES).map(|n| ((n * 31) >> 3) as u8).collect();
        let mut at = 0;
        while at < bytes {
            let len = (bytes - at).min(piece.len() as u64) as usize;
            file.write_at(self.context(), at, &piece[..len]).map_err(self.failed())?;
            at += len as u64;
        }
        file.sync(self.context()).map_err(self.failed())?;
        Ok(Temporary { file, id: attr.file })
    }

    fn remove(&self, temporary: Temporary) -> Done {
        temporary.file.close(self.context()).map_err(self.failed())
    }

    /// The rates of the links and disks, and the round trip.
    pub fn measure(&self) -> Done<Measured> {
        let client = self.connect(true).map_err(self.failed())?;
        let unit_bytes = u64::from(weir_layout::place::DEFAULT_STRIPE_UNIT_BYTES);
        let mut measured = Measured::default();
        for (count, rate) in
            [(0, &mut measured.link_bytes_per_s), (1, &mut measured.disk_bytes_per_s)]
        {
            let temporary = self.make(Stripes { unit_bytes, count }, MEASURE_BYTES)?;
            *rate = self.read_through(&client, temporary.id).map_err(self.failed())?;
            let short = SHORT_CALL_BYTES as u64;
            let call = |first, step| {
                self.short_calls(&client, temporary.id, (first, step)).map_err(self.failed())
            };
            if count == 1 {
                measured.round_trip_s = call(0, short)?;
            } else if self.targets()? > 1 {
                // Within a unit, and across the end of one, which is the end of a target's part.
                let (one, two) = (call(0, unit_bytes)?, call(unit_bytes - short / 2, unit_bytes)?);
                measured.request_s = Some((two - one).max(LEAST_REQUEST_S));
            }
            self.remove(temporary)?;
        }
        client.shutdown();
        Ok(measured)
    }

    fn read_through(&self, client: &Client, id: FileId) -> Result<f64, Error> {
        let (file, _) = client.open(self.context(), id, Rights::READ)?;
        let mut buffer = vec![0; LONG_CALL_BYTES];
        let mut best: f64 = 0.0;
        // The first round opens connections.
        for _ in 0..2 {
            let start = Instant::now();
            for call in 0..MEASURE_BYTES / LONG_CALL_BYTES as u64 {
                file.read_at(self.context(), call * LONG_CALL_BYTES as u64, &mut buffer)?;
            }
            best = best.max(MEASURE_BYTES as f64 / start.elapsed().as_secs_f64());
        }
        file.close(self.context())?;
        Ok(best)
    }

    /// Targets that files can be striped over.
    fn targets(&self) -> Done<usize> {
        Ok(self.found.tree.client.cluster_map().map_err(self.failed())?.targets().count())
    }

    /// The median time of short calls, seconds: the first at this offset, each so many bytes after
    /// the one before.
    fn short_calls(
        &self,
        client: &Client,
        id: FileId,
        (first, step): (u64, u64),
    ) -> Result<f64, Error> {
        let (file, _) = client.open(self.context(), id, Rights::READ)?;
        let mut buffer = vec![0; SHORT_CALL_BYTES];
        let mut times = Vec::with_capacity(SHORT_CALLS);
        for call in 0..SHORT_CALLS as u64 {
            let start = Instant::now();
            file.read_at(self.context(), first + call * step, &mut buffer)?;
            times.push(start.elapsed().as_secs_f64());
        }
        file.close(self.context())?;
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// Bytes per second of all readers of a workload, each with a session of its own, on a new file
    /// of this layout. The servers have the file in memory.
    pub fn run(
        &self,
        workload: Workload,
        stripes: Stripes,
        bytes: u64,
        no_cache: bool,
    ) -> Done<f64> {
        let temporary = self.make(stripes, bytes)?;
        let barrier = Barrier::new(workload.readers as usize);
        let read = std::thread::scope(|scope| {
            let reader = |number| {
                let (barrier, id) = (&barrier, temporary.id);
                move || self.reader(workload, number, id, bytes, no_cache, barrier)
            };
            let started: Vec<_> = (0..workload.readers).map(|n| scope.spawn(reader(n))).collect();
            let ended = started.into_iter().map(|thread| match thread.join() {
                Ok(read) => read,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.collect::<Vec<_>>()
        });
        self.remove(temporary)?;
        let (mut sum, mut longest) = (0, 0.0f64);
        for read in read {
            let (bytes, seconds) = read.map_err(self.failed())?;
            sum += bytes;
            longest = longest.max(seconds);
        }
        Ok(sum as f64 / longest)
    }

    /// Bytes and seconds of one reader.
    fn reader(
        &self,
        workload: Workload,
        number: u32,
        id: FileId,
        bytes: u64,
        no_cache: bool,
        barrier: &Barrier,
    ) -> Result<(u64, f64), Error> {
        let opened = self.connect(no_cache).and_then(|client| {
            let (file, _) = client.open(self.context(), id, Rights::READ)?;
            Ok((client, file))
        });
        // The other readers wait for this one, even if it has failed.
        barrier.wait();
        let (client, file) = opened?;
        let call = workload.call_bytes;
        let places = bytes / call;
        let mut random = fastrand::Rng::with_seed(u64::from(number) + 1);
        let mut buffer = vec![0; call as usize];
        let start = Instant::now();
        let calls = places.min(MAX_CALLS);
        for n in 0..calls {
            let place = match workload.order {
                Order::Sequential => n,
                Order::Random => random.u64(0..places),
            };
            file.read_at(self.context(), place * call, &mut buffer)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        file.close(self.context())?;
        client.shutdown();
        Ok((calls * call, seconds))
    }
}
