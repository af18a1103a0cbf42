//! `weir take`: prints those parts of shared input files that no other process of the job takes.

use crate::args::Take as Arguments;
use crate::failure::{Done, Failure};
use crate::files::name::{RemoteName, child, split};
use crate::files::remote::{RemoteTree, Sessions};
use crate::jobs::member;
use crate::logging;
use serde_json::json;
use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::Instant;
use weir_client::job::job_named;
use weir_jobs::{Input, Record, Take, TakeOptions, TakeSummary};
use weir_types::{ErrorKind, FileId, FileKind, JobId};

/// The prefix of the files that record claims. They are not read as inputs.
const CLAIMS: &str = ".weir-take-";

/// Runs `weir take`.
///
/// # Errors
/// Errors of reading; blocks that this process had claimed are then lost. Also an error if the
/// reader of the output has ended.
pub fn run(take: &Arguments) -> Done {
    let (mut sessions, mut inputs) = (Sessions::default(), Vec::new());
    let mut first: Option<(Arc<RemoteTree>, RemoteName)> = None;
    for text in &take.files {
        let name = RemoteName::parse(text)?;
        let tree = sessions.tree(&take.client, &name, "take")?;
        add(&tree, &name.path, &mut inputs)?;
        let of_first = first.get_or_insert((tree, name.clone()));
        if of_first.1.cluster != name.cluster {
            return Err(Failure::new("files of several clusters cannot be read together"));
        }
    }
    let Some((tree, name)) = first else { return Ok(()) };
    let options = options(take, &tree, &name)?;
    let started = Instant::now();
    let about = |error: weir_types::Error| {
        let refused = matches!(error.kind, ErrorKind::AccessDenied | ErrorKind::ReadOnly);
        let hint = "the record of what is taken is in the directory of the first file: give \
                    another one with --state";
        match refused && error.message.contains(CLAIMS) {
            true => Failure::from(error).hint(hint),
            false => Failure::from(error),
        }
    };
    let mut blocks = Take::new(&tree.client, &tree.context, &inputs, &options).map_err(about)?;
    let mut out = stdout().lock();
    while let Some(block) = blocks.next_block().map_err(about)? {
        out.write_all(&block.bytes)
            .map_err(|e| Failure::from(weir_types::Error::from(e)).about("standard output"))?;
    }
    if take.json {
        tell(blocks.summary(), started.elapsed().as_secs_f64());
    }
    Ok(())
}

fn options(take: &Arguments, tree: &RemoteTree, first: &RemoteName) -> Done<TakeOptions> {
    let record = match take.record {
        None => Record::Line,
        Some(size) => Record::Bytes(size.0),
    };
    let dir = match &take.state {
        Some(text) => {
            let name = RemoteName::parse(text)?;
            if name.cluster != first.cluster {
                return Err(Failure::new(
                    "--state must be a directory in the cluster of the files",
                ));
            }
            name.path
        }
        None if is_directory(tree, &first.path)? => first.path.clone(),
        None => split(&first.path).map_or(b"/".to_vec(), |(dir, _)| dir.to_vec()),
    };
    let attr = tree.attr(&dir, true)?;
    if attr.kind != FileKind::Directory {
        return Err(tree.about(&dir)(ErrorKind::NotDirectory.into()));
    }
    let (job, rank, ranks) = who(take)?;
    let options = TakeOptions::new(job, attr.file);
    Ok(TakeOptions { rank, ranks, record, block_bytes: take.block.0, ..options })
}

/// The job, the number of this process in it, and the number of processes.
fn who(take: &Arguments) -> Done<(JobId, u32, u32)> {
    let uid = rustix::process::geteuid().as_raw();
    // The parent process does not identify a job: it may be a separate shell for each process.
    let (member, other) = (member(uid, 0), member(uid, 1));
    let named = take.job.as_ref().map(|name| job_named(name, uid));
    match (named, member) {
        (None, Some(_)) if member != other => {
            let what = "the launcher of this process gives the job no name";
            Err(Failure::new(what).hint("give one that no other job has, with --job"))
        }
        (named, Some(member)) => Ok((named.unwrap_or(member.job), member.rank.0, member.ranks)),
        (Some(_), None) => {
            let what = "--job: it is not known which process of the job this is, and of how many";
            let hint =
                "start it by `weir run -n N`, or by `weir run --job NAME --rank R --ranks N`";
            Err(Failure::new(what).hint(hint))
        }
        // The process runs alone.
        (None, None) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = now.map_or(0, |since| since.as_nanos());
            Ok((job_named(&format!("take-{}-{now}", std::process::id()), uid), 0, 1))
        }
    }
}

fn is_directory(tree: &RemoteTree, path: &[u8]) -> Done<bool> {
    Ok(tree.attr(path, true)?.kind == FileKind::Directory)
}

/// Adds a file, or the files of a directory in the order of their names.
fn add(tree: &RemoteTree, path: &[u8], inputs: &mut Vec<Input>) -> Done {
    let attr = tree.attr(path, true)?;
    let mut input = |path: &[u8], file: FileId| inputs.push(Input { name: tree.shown(path), file });
    if attr.kind != FileKind::Directory {
        input(path, attr.file);
        return Ok(());
    }
    for entry in tree.entries(attr.file).map_err(tree.about(path))? {
        let path = child(path, &entry.name);
        let kind = match &entry.attr {
            Some(attr) => attr.kind,
            None => tree.attr(&path, false)?.kind,
        };
        if kind == FileKind::File && !entry.name.starts_with(CLAIMS.as_bytes()) {
            input(&path, entry.file);
        }
    }
    Ok(())
}

fn tell(summary: TakeSummary, seconds: f64) {
    let TakeSummary { blocks, bytes, near_bytes, other_bytes } = summary;
    let told = json!({
        "blocks": blocks,
        "bytes": bytes,
        "local_bytes": near_bytes,
        "other_bytes": other_bytes,
        "seconds": seconds,
    });
    // One write, so that the lines of the processes of a job do not get mixed up.
    let line = format!("{told}\n");
    logging::put(line.into_bytes());
}
