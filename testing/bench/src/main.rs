//! `make bench`: the performance of Weir beside the limits of the machine, in one run.
//!
//! ```text
//! bench ── rows: each row alternates its series, round by round
//!   │        series: Weir by library and by mount; raw TCP, page cache, disk,
//!   │        a trivial /dev/fuse server, ping-pongs
//!   ├── workers: load generators, processes of their own (this program again)
//!   ├── cluster: `weir up` with four data servers, `weir mount`
//!   └── accounting: CPU of each group of processes, by cgroup where possible
//! ```
//! Everything that is started is stopped by its process id, also after Ctrl-C.

mod accounting;
mod args;
mod cluster;
mod coding;
mod creates;
mod entries;
mod failure;
mod files;
mod fuse_limit;
mod hints;
mod judge;
mod lab;
mod library;
mod machine;
mod memory;
mod messages;
mod order;
mod pieces;
mod posix;
mod raw;
mod redundancy;
mod report;
mod rows;
mod sample;
mod small;
mod stop;
mod trees;
mod ways;
mod worker;
mod worker_process;

use args::{Arguments, Other};
use clap::Parser;
use failure::Done;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.other {
        Some(Other::Worker) => worker::run(),
        Some(Other::FuseLimit { mountpoint }) => fuse_limit::serve(mountpoint),
        Some(Other::InGroup { group, command }) => accounting::exec_in_group(group, command),
        Some(Other::Redundancy(redundancy)) => {
            measure(&arguments, |weir, dir| redundancy::run(redundancy, weir, dir))
        }
        Some(Other::Coding { json }) => code(json.as_deref()),
        Some(Other::Pieces(pieces)) => {
            measure(&arguments, |weir, dir| pieces::run(pieces, weir, dir))
        }
        Some(Other::Hints(hints)) => measure(&arguments, |weir, dir| hints::run(hints, weir, dir)),
        Some(Other::Creates(creates)) => {
            measure(&arguments, |weir, dir| creates::run(creates, weir, dir))
        }
        Some(Other::Names(trees)) => names(&arguments, trees),
        Some(Other::Entries(of)) => measure(&arguments, |weir, dir| entries::run(of, weir, dir)),
        Some(Other::Small(small)) => measure(&arguments, |weir, dir| small::run(small, weir, dir)),
        Some(Other::Messages(asked)) => messages::run(asked),
        None => bench(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("weir-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a separate measurement with the requested `weir` program and directory.
fn measure(arguments: &Arguments, run: impl FnOnce(&Path, &Path) -> Done) -> Done {
    stop::catch_signals();
    let (weir, dir) = arguments.places()?;
    let _alone = machine::alone()?;
    println!("{}", machine::Machine::look(&dir));
    run(&weir, &dir)
}

/// Rows of single files first, then trees, then latencies beside many entries.
fn names(arguments: &Arguments, trees: &args::Trees) -> Done {
    stop::catch_signals();
    let _alone = machine::alone()?;
    let (weir, dir) = arguments.places()?;
    println!("{}", machine::Machine::look(&dir));
    if trees.trees {
        return trees::run(trees, &weir, &dir);
    }
    let rows = ways::Row::ALL.into_iter().filter(|row| row.is_of_names()).collect();
    let plan = args::Plan {
        rows,
        rounds: trees.rounds,
        files: trees.files.next_multiple_of(4),
        ..arguments.plan()?
    };
    let results = rows::run(&plan)?;
    let verdicts = judge::judge(&results);
    print!("{}", report::text(&results, &verdicts));
    trees::run(trees, &weir, &dir)?;
    if let Some(namespace) = trees.namespace() {
        entries::run(&namespace, &weir, &dir)?;
    }
    results.outcome()
}

fn code(json: Option<&Path>) -> Done {
    let _alone = machine::alone()?;
    println!("{}", machine::Machine::look(&std::env::temp_dir()));
    let lines = coding::run();
    print!("{}", coding::text(&lines));
    let Some(path) = json else { return Ok(()) };
    let json = serde_json::json!({ "coding": lines });
    std::fs::write(path, format!("{json:#}\n")).map_err(|e| failure::Failure::file(path, e))
}

fn bench(arguments: &Arguments) -> Done {
    stop::catch_signals();
    let plan = arguments.plan()?;
    let _alone = machine::alone()?;
    let machine = machine::Machine::look(&plan.base_dir);
    println!("{machine}");
    let results = rows::run(&plan)?;
    let verdicts = judge::judge(&results);
    print!("{}", report::text(&results, &verdicts));
    let coding = if arguments.only.is_empty() { coding::run() } else { Vec::new() };
    if !coding.is_empty() {
        print!("{}", coding::text(&coding));
    }
    if let Some(path) = &arguments.json {
        let json = report::json(&machine, &plan, (&results, &coding), &verdicts);
        std::fs::write(path, json).map_err(|e| failure::Failure::file(path, e))?;
    }
    if let Some(path) = &arguments.markdown {
        let markdown = report::markdown(&machine, &results, &verdicts);
        std::fs::write(path, markdown).map_err(|e| failure::Failure::file(path, e))?;
    }
    results.outcome()
}
