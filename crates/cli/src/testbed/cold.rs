//! `weir testbed cold`: drops all file contents from memory and verifies that they are gone.

use super::failed::failed;
use super::record::{Place, Record};
use crate::args::TestbedCold;
use crate::cluster::mounting::mounts_of;
use crate::failure::{Done, Failure};
use crate::output::print;
use std::io::{Read, Result};
use std::process::Stdio;
use std::time::Duration;
use weir_testbed::{forget, forget_whole, missing_for_cold};

/// The longest to wait for read-ahead in progress.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `weir testbed cold`.
pub fn run(cold: &TestbedCold) -> Done {
    if let Some(what) = missing_for_cold() {
        return Err(Failure::new(format!("the proof needs {what}")));
    }
    let place = Place::of(&cold.choice)?;
    let record = place.required()?;
    record.require(cold.node)?;
    forget_all(&place, &record)?;
    for file in cold.files.iter().filter(|file| *file != "all") {
        let (given, got) = read(&place, &record, cold.node, file)?;
        if given < got {
            let what = format!("not cold: the disks gave {given} bytes of {got}");
            return Err(Failure::new(what).about(file));
        }
        print(&format!("{file}: {got} bytes, the disks gave {given} by the kernel's count\n"))?;
        forget_all(&place, &record)?;
    }
    print("nothing of what the disks hold is in memory\n")
}

/// Drops the caches of all disks and mounts, and checks that nothing is left.
fn forget_all(place: &Place, record: &Record) -> Done {
    for mount in mounts_of(&place.cluster())? {
        forget(&mount.mountpoint).map_err(failed)?;
    }
    let mut left = 0;
    for (node, _) in record.numbered() {
        let at = place.disk(node);
        left += forget_whole(&at, PATIENCE).map_err(failed)?;
    }
    match left {
        0 => Ok(()),
        left => Err(Failure::new(format!("{left} bytes of the disks stay in memory"))
            .hint("programs that write to them, or map their files, have to end first")),
    }
}

/// Reads a whole file with a client of its own. Returns the bytes that the disks read and those
/// that the client got.
fn read(place: &Place, record: &Record, node: u32, file: &str) -> Done<(u64, u64)> {
    let count = || {
        let counts = record.numbered().map(|(n, _)| record.disk_counts(place, n));
        counts.map(|counts| Ok(counts?.read_bytes)).sum::<Done<u64>>()
    };
    let before = count()?;
    let program = std::env::current_exe()
        .map_err(|e| Failure::new(format!("cannot find the program itself: {e}")))?;
    let mut command = record.network(place).command(node, program.as_os_str());
    command.arg("cat").arg("--dir").arg(place.cluster().dir()).arg("--").arg(file);
    ["WEIR_CREDENTIAL", "WEIR_CLUSTER"].iter().for_each(|name| _ = command.env_remove(name));
    let cannot = |e| failed(e).about("weir cat");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
    let got = child.stdout.take().map_or(Ok(0), drain).map_err(cannot)?;
    match child.wait().map_err(cannot)?.success() {
        true => Ok((count()?.saturating_sub(before), got)),
        // The command has reported why.
        false => Err(Failure::new("")),
    }
}

fn drain(mut from: impl Read) -> Result<u64> {
    let (mut bytes, mut memory) = (0, vec![0; 1 << 20]);
    loop {
        match from.read(&mut memory)? {
            0 => return Ok(bytes),
            n => bytes += n as u64,
        }
    }
}
