//! `make figures`: the experiments behind Weir's figures, with real servers, real mounts and
//! disks of a set speed on this machine; nothing is simulated.
//!
//! ```text
//! even_reads     all read a file of their own, some disks are perturbed
//! partitions     all read parts of one file, of several sizes
//! adjacent       all read a file of their own with two copies, or three; faults are side by side
//! zoned_reads    the same of disks whose inner tracks give less
//!   │  files     what they read;  course: their rounds;  compare: with what is ideal
//!   └─ proof     that caches were cold, and perturbers had their share
//! mirrored       clients of files with one copy and with two
//! mirrored_hot   the same of what is in memory, behind links
//! hot_spot       one disk is written to without a pause
//! distributed_queue  writers spread records over disks, some of which are slow
//! graduated_write  writers of a file each, each chunk where it is written first
//! write_size     the same by the size of calls
//! second_copies  writers of files without a copy, and with one on as many disks besides
//! part_writes    writers of parts of one file, of several sizes
//!   └─ writing   writers on disks of which some are slow
//! call_size      all read a file of their own on disks with a head, in calls of several sizes
//! hot_network    clients of what is in memory, the link of one server is loaded
//! hot_processor  the same, one server has no processor
//! serving_clients  clients of what is in memory, on the nodes of servers and on others
//! congested      readers and writers on the nodes of their disks, behind slow links
//! applications   programs of ours, one disk or link is hot
//! delay          a client behind a link on which all takes a while
//! advice         readers of records, on what `weir advise` says
//! nfs        readers of records, of an NFS server and of Weir
//! mining         the first pass of weir-mining, of Weir and of an NFS server
//! hdfs           a search on HDFS, and on Weir with its layout hidden and exposed
//! spark          Spark on the nodes of its data: what is read from the own node
//! reduce         disks that encode their copies: what is stored, over time
//! deletion       files are made and removed: what cleaning their sets takes
//! encode_delay   files that get parities after a while: what readers gain
//! servers        bandwidth by the number of servers
//! links          and by what links carry
//! matching       weir-match with hints and without
//! redundancy     copies and parities side by side
//! slow_disk      the demonstration of the quick start
//! lab            disks, a cluster on them, files, mounts: what experiments share
//!   │  cluster   the program `weir`;  bed: machines of a profile
//!   └─ round     one round: cold caches, perturbers, readers;  outcome: the kernel's counts
//! worker         this program again: a reader, or a perturber;  programs: others of ours
//! records        what was measured in each round;  points: what is compared
//! report         CSV, PASS and FAIL;  plot: SVG
//! ```
//! Everything that is started is stopped by its number, and all that is made goes, also after
//! Ctrl-C.

mod adjacent;
mod advice;
mod applications;
mod args;
mod bed;
mod call_size;
mod cluster;
mod compare;
mod congested;
mod course;
mod delay;
mod deletion;
mod distributed_queue;
mod encode_delay;
mod even_reads;
mod files;
mod graduated_write;
mod hdfs;
mod hot_network;
mod hot_processor;
mod hot_spot;
mod lab;
mod links;
mod matching;
mod mining;
mod mirrored;
mod mirrored_hot;
mod nfs;
mod outcome;
mod part_writes;
mod partitions;
mod plot;
mod points;
mod programs;
mod proof;
mod records;
mod reduce;
mod redundancy;
mod report;
mod round;
mod second_copies;
mod servers;
mod serving_clients;
mod slow_disk;
mod spark;
mod statistics;
mod stop;
mod worker;
mod write_size;
mod writing;
mod zoned_reads;

use args::{Arguments, Experiment};
use clap::Parser;
use std::io::{Error, Result};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.experiment {
        Some(Experiment::Worker(work)) => worker::run(work),
        // The quick start goes on without it.
        Some(Experiment::SlowDisk(_)) if weir_testbed::missing().is_some() => {
            println!("skipped: needs {}", weir_testbed::missing().unwrap_or_default());
            Ok(())
        }
        Some(experiment) => prepared(experiment).and_then(|()| run(experiment)),
        None => args::all().iter().try_for_each(|experiment| match lacks(experiment) {
            // Those on disks alone need less than those on whole machines.
            Some(what) if needs_machines(experiment) => {
                println!("skipped: needs {what}");
                Ok(())
            }
            _ => prepared(experiment).and_then(|()| run(experiment)),
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-figures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Disks with heads are files of a file system of our own.
fn has_heads(experiment: &Experiment) -> bool {
    use Experiment::{MirroredReads, SecondCopies, ZonedReads};
    matches!(experiment, ZonedReads(_) | MirroredReads(_) | SecondCopies(_))
}

fn needs_machines(experiment: &Experiment) -> bool {
    match experiment {
        Experiment::CallSize(_)
        | Experiment::HotNetwork(_)
        | Experiment::MirroredHot(_)
        | Experiment::HotProcessor(_)
        | Experiment::ServingClients(_)
        | Experiment::Congested(_)
        | Experiment::Applications(_)
        | Experiment::Delay(_)
        | Experiment::Advice(_)
        | Experiment::Links(_)
        | Experiment::Nfs(_)
        | Experiment::Mining(_)
        | Experiment::Hdfs(_)
        | Experiment::Spark(_) => true,
        Experiment::EvenReads(plan) => plan.profile.is_some(),
        _ => false,
    }
}

fn lacks(experiment: &Experiment) -> Option<&'static str> {
    if let (Experiment::Nfs(_), Some(what)) = (experiment, weir_testbed::missing_for_nfs()) {
        return Some(what);
    }
    if let Experiment::Mining(_) = experiment {
        let own = weir_testbed::missing_for_nfs().or_else(weir_testbed::missing_for_arrays);
        if let Some(what) = own.or_else(weir_testbed::missing_for_processors) {
            return Some(what);
        }
    }
    let has_processors =
        matches!(experiment, Experiment::HotProcessor(_) | Experiment::ServingClients(_));
    if let (true, Some(what)) = (has_processors, weir_testbed::missing_for_processors()) {
        return Some(what);
    }
    match needs_machines(experiment) {
        true => weir_testbed::missing_for_models().or_else(weir_testbed::missing_for_networks),
        false if has_heads(experiment) => weir_testbed::missing_for_models(),
        false => weir_testbed::missing(),
    }
}

fn prepared(experiment: &Experiment) -> Result<()> {
    stop::catch_signals();
    match lacks(experiment) {
        Some(what) => Err(Error::other(format!("needs {what}"))),
        None => Ok(()),
    }
}

fn run(experiment: &Experiment) -> Result<()> {
    match experiment {
        Experiment::EvenReads(plan) => even_reads::run(plan),
        Experiment::Partitions(plan) => partitions::run(plan),
        Experiment::AdjacentFaults(plan) => adjacent::run(plan),
        Experiment::ZonedReads(plan) => zoned_reads::run(plan),
        Experiment::MirroredReads(plan) => mirrored::run(plan),
        Experiment::MirroredHot(plan) => mirrored_hot::run(plan),
        Experiment::HotSpot(plan) => hot_spot::run(plan),
        Experiment::DistributedQueue(plan) => distributed_queue::run(plan),
        Experiment::GraduatedWrite(plan) => graduated_write::run(plan),
        Experiment::WriteSize(plan) => write_size::run(plan),
        Experiment::SecondCopies(plan) => second_copies::run(plan),
        Experiment::PartWrites(plan) => part_writes::run(plan),
        Experiment::CallSize(plan) => call_size::run(plan),
        Experiment::HotNetwork(plan) => hot_network::run(plan),
        Experiment::HotProcessor(plan) => hot_processor::run(plan),
        Experiment::ServingClients(plan) => serving_clients::run(plan),
        Experiment::Congested(plan) => congested::run(plan),
        Experiment::Applications(plan) => applications::run(plan),
        Experiment::Delay(plan) => delay::run(plan),
        Experiment::Advice(plan) => advice::run(plan),
        Experiment::Nfs(plan) => nfs::run(plan),
        Experiment::Mining(plan) => mining::run(plan),
        Experiment::Hdfs(plan) => hdfs::run(plan),
        Experiment::Spark(plan) => spark::run(plan),
        Experiment::Reduce(plan) => reduce::run(plan),
        Experiment::Deletion(plan) => deletion::run(plan),
        Experiment::EncodeDelay(plan) => encode_delay::run(plan),
        Experiment::Redundancy(plan) => redundancy::run(plan),
        Experiment::Servers(plan) => servers::run(plan),
        Experiment::Links(plan) => links::run(plan),
        Experiment::Match(plan) => matching::run(plan),
        Experiment::SlowDisk(plan) => slow_disk::run(plan),
        Experiment::Worker(work) => worker::run(work),
    }
}
