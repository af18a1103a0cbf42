//! `weir-grep`: lines with a fixed text, sorted, by all processes of a job.

use clap::Parser;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use weir_jobs::Record;
use weir_parallel::grep::{Question, grep};
use weir_parallel::options::Common;
use weir_parallel::report::{Report, finish};

/// Find lines with a fixed text, and print them sorted
#[derive(Parser)]
#[command(
    name = "weir-grep",
    version,
    after_help = "The result is that of `grep -F TEXT FILE... | LC_ALL=C sort`. The exit code is 0 if \
    there are lines, 1 if there are none, and 2 after an error.\n\n  \
    weir-grep needle weir:/in\n  \
    mpirun -n 8 weir-grep needle weir:/in --output weir:/found"
)]
struct Arguments {
    /// The text to look for
    text: OsString,
    /// Files, or directories of files: weir:/PATH, weir://CLUSTER/PATH, or of this machine
    #[arg(required = true, value_name = "FILE")]
    inputs: Vec<OsString>,
    /// Print only the number of lines
    #[arg(long, short)]
    count: bool,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let Arguments { text, inputs, count, common } = Arguments::parse();
    let mut report = Report::begin("weir-grep");
    let question = Question { text: text.into_vec(), count };
    let found = common.begin("weir-grep", &inputs, Record::Line).and_then(|run| {
        let found = grep(&run, &question, &mut report);
        finish(&run, found, common.json.then_some(report))
    });
    match found {
        Ok(0) => ExitCode::from(1),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "weir-grep: {error}");
            ExitCode::from(2)
        }
    }
}
