//! Computes columns and parities of a segment from others of it, as the metadata server orders.
//!
//! Nobody writes the segment meanwhile, so what is read at different times belongs together. That
//! is looked at, too: an object counts as it is only if its server has fenced it before, and as
//! long as its length stays.
//!
//! Invariants
//! - What is reported is durable.
//! - One thread for each target computes one object after another. So nothing of an earlier order
//!   is written once a later one has begun.

use super::pacer::Pacer;
use super::set::{Set, Source};
use crate::checksums::checksums;
use crate::disk::Disk;
use crate::state::Shared;
use std::sync::Arc;
use weir_erasure::{Code, Repair};
use weir_host::net::Signal;
use weir_host::plant::{Bug, planted};
use weir_host::thread::spawn;
use weir_net::AbortOnPanic;
use weir_store::Object;
use weir_types::limits::{BLOCK_BYTES, MAX_CODED_COLUMNS, MAX_FIND_COPIES, MAX_PARITIES};
use weir_types::{Error, ErrorKind, Result};
use weir_wire::peer::Build;

/// Bytes of one step of each source.
const STEP_BYTES: u64 = 1 << 20;

const _: () = assert!(MAX_CODED_COLUMNS + MAX_PARITIES <= MAX_FIND_COPIES);
const _: () = assert!(STEP_BYTES.is_multiple_of(BLOCK_BYTES as u64));

/// Begins a thread that carries out the orders of a target, if there are any that none works on.
///
/// # Errors
/// There are too many threads.
pub(super) fn work_off(shared: &Arc<Shared>, disk: &Arc<Disk>, shutdown: &Signal) -> Result<()> {
    if !disk.builds.begin() {
        return Ok(());
    }
    let pacer = Pacer::new(shared.clone(), shutdown.clone(), 1);
    let builder = Builder { shared: shared.clone(), disk: disk.clone(), pacer };
    let name = format!("weir-build-{}", disk.served.id);
    let body = move || {
        let _guard = AbortOnPanic("a thread that computes parities");
        builder.run();
        builder.disk.builds.left();
    };
    let thread = spawn(&name, body).map_err(|error| {
        disk.builds.left();
        Error::from(error).context("start a thread")
    })?;
    disk.builds.is_worked_on_by(thread);
    Ok(())
}

/// What computes the objects of one target.
struct Builder {
    shared: Arc<Shared>,
    disk: Arc<Disk>,
    pacer: Pacer,
}

impl Builder {
    /// Carries out the present orders, one after another.
    fn run(&self) {
        for order in self.disk.builds.due() {
            match self.build(&order) {
                Ok(()) => self.disk.builds.ended(&order, true),
                Err(error) if error.kind == ErrorKind::Interrupted => return,
                // It is tried again after a pause.
                Err(error) => {
                    let store = self.disk.store.name();
                    tracing::debug!("{store}: cannot compute {} yet: {error}", order.object);
                    self.disk.builds.ended(&order, false);
                }
            }
        }
    }

    fn set<'a>(&'a self, order: &'a Build) -> Set<'a> {
        Set { shared: &self.shared, order }
    }

    fn build(&self, order: &Build) -> Result<()> {
        let (columns, parities) = (usize::from(order.columns), usize::from(order.parities));
        let code = Code::new(columns, parities);
        let code = code.map_err(|e| Error::new(ErrorKind::InvalidArgument, e.to_string()))?;
        let wanted = usize::from(order.object.column.0);
        if wanted >= code.blocks() {
            return Err(ErrorKind::InvalidArgument.into());
        }
        let set = self.set(order);
        let mut sources = set.sources(code.blocks())?;
        loop {
            let present: Vec<bool> = sources.iter().map(Option::is_some).collect();
            let repair = code.repair(&present, &[wanted]);
            let repair = repair.map_err(|e| Error::new(ErrorKind::Unreachable, e.to_string()))?;
            match self.compute(order, &repair, &sources) {
                // Perhaps others do.
                Err((Some(source), error)) if order.coded => {
                    tracing::debug!("{}: without part {source}: {error}", order.object);
                    sources[source] = None;
                }
                Err((_, error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Computes the object and makes it durable. With an error comes the source that has failed.
    fn compute(
        &self,
        order: &Build,
        repair: &Repair,
        all: &[Option<Source>],
    ) -> Result<(), (Option<usize>, Error)> {
        let sources: Vec<(usize, &Source)> =
            repair.sources().iter().filter_map(|&n| Some((n, all[n].as_ref()?))).collect();
        let len = sources.iter().map(|(_, source)| source.len).max().unwrap_or(0).min(order.len);
        let object = self.begin(order).map_err(|e| (None, e))?;
        let mut at = 0;
        while at < len {
            self.pacer.pace(STEP_BYTES).map_err(|e| (None, e))?;
            let step = STEP_BYTES.min(len - at);
            let mut read = Vec::with_capacity(sources.len());
            for (number, source) in &sources {
                let bytes = self.set(order).read(source, at, step);
                read.push(bytes.map_err(|e| (Some(*number), e))?);
            }
            let parts: Vec<&[u8]> = read.iter().map(Vec::as_slice).collect();
            let mut bytes = vec![0; step as usize];
            repair
                .run(&parts, &mut [&mut bytes])
                .map_err(|e| (None, Error::new(ErrorKind::Internal, e.to_string())))?;
            // The last bytes give it its length.
            if at + step == len || bytes.iter().any(|byte| *byte != 0) {
                self.write(order, &object, at, &bytes).map_err(|e| (None, e))?;
            }
            at += step;
        }
        self.still_holds(order).map_err(|e| (None, e))?;
        if planted(Bug::SkipParitySync) {
            return Ok(());
        }
        self.disk.at_work.on(|| object.sync()).map_err(|e| (None, e))
    }

    /// The object, fenced against earlier orders. A parity begins anew. A column may have got bytes
    /// in other ways, which are the same.
    fn begin(&self, order: &Build) -> Result<Arc<Object>> {
        self.still_holds(order)?;
        self.disk.at_work.on(|| {
            let object = self.disk.store.object_or_create(order.object)?;
            match order.object.column.0 >= order.columns {
                true => object.align(0, order.generation).map(drop)?,
                false => object.fence(order.generation).map(drop)?,
            }
            Ok(object)
        })
    }

    fn still_holds(&self, order: &Build) -> Result<()> {
        self.shared.copies.standings.is_kept(self.disk.served.id)?;
        match self.disk.builds.holds(order) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Stale, "it is not ordered any more")),
        }
    }

    fn write(&self, order: &Build, object: &Object, at: u64, bytes: &[u8]) -> Result<()> {
        self.still_holds(order)?;
        let checks = checksums(at, bytes);
        let pieces = [(at, bytes.len() as u64)];
        let write = || object.write_pieces(&pieces, bytes, &checks, order.generation);
        self.disk.at_work.on(write).map(drop)
    }
}
