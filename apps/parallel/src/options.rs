//! The common options of all programs.

use crate::invalid;
use crate::job::{self, Job};
use crate::reading::{Inputs, Way};
use crate::tree::{Name, Place, Tree, join, split};
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;
use weir_jobs::Record;
use weir_types::size::parse_size;
use weir_types::{FileKind, Result};

/// Options of every program.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Write the result to this file, which is in the same cluster as the inputs, or on this
    /// machine like them
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<OsString>,
    /// How the inputs are read [default: take from a cluster, shares from this machine]
    #[arg(long, value_enum, value_name = "WAY")]
    pub read: Option<Way>,
    /// Bytes of a block, the unit in which the inputs are divided among processes
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_size)]
    pub block: u64,
    /// Memory for sorting or counting
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    pub memory: u64,
    /// Name of the job, the same for all its processes [default: that of mpirun, srun or weir run]
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// Directory for the messages between processes [default: that of the output]
    #[arg(long, value_name = "DIR")]
    pub work: Option<OsString>,
    /// Seconds that a process waits for another one
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub timeout: u64,
    /// Print statistics of each process, as a line of JSON on standard error
    #[arg(long)]
    pub json: bool,
}

/// Minimum of `--memory`: a buffer for each of some hundred processes.
const MIN_MEMORY: u64 = 1 << 20;

/// The state of a run.
pub struct Run {
    /// The file system of inputs and output.
    pub tree: Tree,
    /// The inputs.
    pub inputs: Inputs,
    /// The path of the output.
    pub output: Option<String>,
    /// The job; also for a process that is alone.
    pub job: Job,
    /// Bytes of `--memory`.
    pub memory_bytes: usize,
}

impl Common {
    /// Opens the file system, and joins the job.
    ///
    /// # Errors
    /// Inconsistent options, and those of the files.
    pub fn begin(&self, program: &str, inputs: &[OsString], record: Record) -> Result<Run> {
        if self.memory < MIN_MEMORY {
            return Err(invalid("--memory: 1 MiB or more"));
        }
        let names = inputs.iter().map(|text| Name::parse(text)).collect::<Result<Vec<_>>>()?;
        let first = names.first().ok_or_else(|| invalid("no input"))?;
        let place = first.place.clone();
        let path = |text: &Option<OsString>| match text {
            Some(text) => in_place(Name::parse(text)?, &place).map(Some),
            None => Ok(None),
        };
        let (output, work) = (path(&self.output)?, path(&self.work)?);
        let paths = names.iter().map(|name| in_place(name.clone(), &place));
        let paths = paths.collect::<Result<Vec<_>>>()?;
        let tree = Tree::open(&place, program)?;
        let work = match (&work, &output) {
            (Some(dir), _) => dir.clone(),
            (None, Some(output)) => split(output).0.to_owned(),
            (None, None) => match tree.stat(&first.path)? {
                Some((FileKind::Directory, _)) => first.path.clone(),
                _ => split(&first.path).0.to_owned(),
            },
        };
        let who = job::Who::find(self.job.as_deref())?;
        let dir = join(&work, &format!("{}{:016x}", job::PREFIX, who.id.0));
        let timeout = Duration::from_secs(self.timeout);
        let way = self.read.unwrap_or(match place {
            Place::Local => Way::Shares,
            Place::Cluster(_) => Way::Take,
        });
        if place == Place::Local && way != Way::Shares {
            let what = "--read: files of this machine are read by shares; name files of a cluster \
                        weir:/PATH";
            return Err(invalid(what));
        }
        let inputs = Inputs::find(&tree, &paths, (record, way, self.block))?;
        if let Some(output) = &output
            && let Some(input) = inputs.same_as(output)?
        {
            return Err(invalid(format!("{output}: the output is an input too: {input}")));
        }
        let job = Job::join(&tree, who, dir, timeout)?;
        Ok(Run { tree, inputs, output, job, memory_bytes: self.memory as usize })
    }
}

/// The path of a name that must be on the same file system as the first input.
fn in_place(name: Name, place: &Place) -> Result<String> {
    match name.place == *place {
        true => Ok(name.path),
        false => Err(invalid(format!(
            "{}: inputs, output and --work have to be in one cluster, or all on this machine",
            name.path
        ))),
    }
}
