//! `weir-sort`: sorts records of 100 bytes, by all processes of a job.

use clap::Parser;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::process::ExitCode;
use weir_jobs::Record;
use weir_parallel::invalid;
use weir_parallel::options::Common;
use weir_parallel::report::{Report, finish};
use weir_parallel::sort::{self, RECORD_BYTES};
use weir_parallel::tree::{Name, Tree};
use weir_types::size::parse_size;
use weir_types::{Error, ErrorKind, Result};

/// Sort records of 100 bytes by their bytes
#[derive(Parser)]
#[command(
    name = "weir-sort",
    version,
    after_help = "The first 10 bytes of a record are its key, as in the usual sort benchmark; equal \
    keys are in the order of the other bytes.\n\n  \
    weir-sort --generate 1GiB weir:/in\n  \
    mpirun -n 8 weir-sort weir:/in --output weir:/out\n  \
    weir-sort --check weir:/in weir:/out"
)]
struct Arguments {
    /// Files, or directories of files: weir:/PATH, weir://CLUSTER/PATH, or of this machine
    #[arg(required = true, value_name = "FILE")]
    inputs: Vec<OsString>,
    /// Write random records of this many bytes in all to FILE instead
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "check")]
    generate: Option<u64>,
    /// Decides the records of --generate: equal seeds and sizes give equal files
    #[arg(long, default_value_t = 1, requires = "generate")]
    seed: u64,
    /// Print the number and the sum of the records of each FILE instead. The last FILE must be
    /// sorted, and must have the records of all others
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match (arguments.generate, arguments.check) {
        (Some(bytes), _) => generate(&arguments, bytes),
        (None, true) => check(&arguments.inputs),
        (None, false) => sorted(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "weir-sort: {error}");
            ExitCode::FAILURE
        }
    }
}

fn sorted(arguments: &Arguments) -> Result<()> {
    let Arguments { inputs, common, .. } = arguments;
    if common.output.is_none() {
        return Err(invalid("records are sorted into a file: give it by --output FILE"));
    }
    let mut report = Report::begin("weir-sort");
    let run = common.begin("weir-sort", inputs, Record::Bytes(RECORD_BYTES as u64))?;
    let sorted = sort::sort(&run, run.output.as_deref().unwrap_or_default(), &mut report);
    finish(&run, sorted, common.json.then_some(report))
}

fn open(text: &OsStr) -> Result<(Tree, String)> {
    let name = Name::parse(text)?;
    Ok((Tree::open(&name.place, "weir-sort")?, name.path))
}

fn generate(arguments: &Arguments, bytes: u64) -> Result<()> {
    let [file] = &arguments.inputs[..] else {
        return Err(invalid("--generate writes one FILE"));
    };
    let (tree, path) = open(file)?;
    sort::generate(&tree, &path, bytes / RECORD_BYTES as u64, arguments.seed)
}

fn check(files: &[OsString]) -> Result<()> {
    let (mut all, mut last) = ((0u64, 0u64), None);
    for (number, file) in files.iter().enumerate() {
        let (tree, path) = open(file)?;
        let found = sort::check(&tree, &path)?;
        println!("{path}: {} records, sum {:016x}", found.records, found.sum);
        if number + 1 < files.len() {
            all = (all.0 + found.records, all.1.wrapping_add(found.sum));
        } else {
            last = Some((path, found));
        }
    }
    let Some((path, found)) = last else { return Ok(()) };
    let bad = |what: String| Err(Error::new(ErrorKind::Corrupt, format!("{path}: {what}")));
    if let Some(number) = found.unsorted_at {
        return bad(format!("record {number} belongs before the one before it"));
    }
    match files.len() == 1 || all == (found.records, found.sum) {
        true => Ok(()),
        false => bad("it does not have the records of the others".to_owned()),
    }
}
