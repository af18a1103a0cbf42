//! A program has more files open on a mount than any daemon may have
//! descriptors: they do not run out.

use crate::harness::{Place, again, noise, root, said};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Of every daemon, with no way to raise it.
const DESCRIPTORS: usize = 256;
const FILES: usize = 2000;
const THREADS: usize = 16;
/// What the program may take, on two busy cores.
const PATIENCE: Duration = Duration::from_secs(60);

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn contents(file: usize, round: u64) -> Vec<u8> {
    // Small ones, and some that lie on all targets.
    noise(if file.is_multiple_of(50) { 400_000 } else { 300 + file }, file as u64 * 7 + round)
}

/// A process of its own, because other children of the test would inherit its
/// open files.
#[test]
fn program_process() {
    let Some(dir) = std::env::var_os("WEIR_TEST_DIR").map(PathBuf::from) else { return };
    let open = |i: usize| {
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(true);
        how.open(dir.join(format!("{i}"))).unwrap_or_else(|e| panic!("file {i}: {e}"))
    };
    let files: Vec<File> = (0..FILES).map(open).collect();
    for round in 0..2 {
        // Many at a time, so that the daemons have as much to do at once.
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let files = &files;
                scope.spawn(move || {
                    for i in (thread..FILES).step_by(THREADS) {
                        let check = |what: &str, done: std::io::Result<()>| {
                            done.unwrap_or_else(|e| panic!("{what} file {i}: {e}"));
                        };
                        check("write", files[i].write_all_at(&contents(i, round), 0));
                        if i % 40 == 0 {
                            check("sync", files[i].sync_all());
                        }
                    }
                });
            }
        });
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let files = &files;
                scope.spawn(move || {
                    for i in (thread..FILES).step_by(THREADS) {
                        let mut read = vec![0; contents(i, round).len()];
                        let done = files[i].read_exact_at(&mut read, 0);
                        done.unwrap_or_else(|e| panic!("read file {i}: {e}"));
                        assert!(read == contents(i, round), "file {i}");
                    }
                });
            }
        });
    }
}

#[test]
fn a_program_may_have_more_files_open_than_the_daemons_have_descriptors() {
    if !root() {
        return;
    }
    let place = Place::new();
    let at = place.path("m");
    let cluster = place.cluster("many");
    let up = place.command(&["up", "--name", "many", "--mount", at.to_str().unwrap()]);
    // The daemon must not be able to raise the limit: it needs that capability for nothing else.
    let mut limited = Command::new("setpriv");
    limited.args(["--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource", "prlimit"]);
    limited.arg(format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}"));
    limited.arg(up.get_program()).args(up.get_args()).current_dir(up.get_current_dir().unwrap());
    for (name, value) in up.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    said(limited).ok();
    for pid in cluster.pids() {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        assert_eq!(numbers.collect::<Vec<usize>>(), [DESCRIPTORS; 2], "process {pid}");
    }
    let mut program = again("many_descriptors::program_process");
    program.env("WEIR_TEST_DIR", &at);
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut program = Program(program.spawn().unwrap());
    let begin = Instant::now();
    let ended = loop {
        if let Some(status) = program.0.try_wait().unwrap() {
            break Some(status);
        }
        if begin.elapsed() > PATIENCE {
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut complaint = String::new();
    if ended.is_some() {
        program.0.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    }
    let log =
        || fs::read_to_string(cluster.dir().join(format!("log/{}.log", cluster.mount_daemon())));
    let well = ended.is_some_and(|status| status.success());
    assert!(well, "{ended:?}: {complaint}\nThe mount: {}", log().unwrap());
    eprintln!("{FILES} open files were used: {:?}", begin.elapsed());
    cluster.weir(&["status"]).ok();
    cluster.weir(&["umount", at.to_str().unwrap()]).ok();
}
