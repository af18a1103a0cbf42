//! `weir-wordcount`: counts the occurrences of each word, with all processes of a job.

use clap::Parser;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use weir_jobs::Record;
use weir_parallel::count::count;
use weir_parallel::options::Common;
use weir_parallel::report::{Report, finish};

/// Count the occurrences of each word
#[derive(Parser)]
#[command(
    name = "weir-wordcount",
    version,
    after_help = "A word is what stands between blanks, tabs and ends of lines. The result has a \
    line for each word, in the order of the bytes: its number, a tab, the word.\n\n  \
    weir-wordcount weir:/in --output weir:/words\n  \
    weir run -n 4 -- weir-wordcount weir:/in --output weir:/words"
)]
struct Arguments {
    /// Files, or directories of files: weir:/PATH, weir://CLUSTER/PATH, or of this machine
    #[arg(required = true, value_name = "FILE")]
    inputs: Vec<OsString>,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let Arguments { inputs, common } = Arguments::parse();
    let mut report = Report::begin("weir-wordcount");
    let counted = common.begin("weir-wordcount", &inputs, Record::Line).and_then(|run| {
        let counted = count(&run, &mut report);
        finish(&run, counted, common.json.then_some(report))
    });
    match counted {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "weir-wordcount: {error}");
            ExitCode::FAILURE
        }
    }
}
