//! Programs that belong together are known as a job when they open files.

use crate::harness::{self, Cluster, Place, noise};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const FILE_BYTES: usize = 1 << 20;
const RANKS: u64 = 3;

/// Reads of processes that said how far they are, as all data servers count them.
fn reads_of_jobs(cluster: &Cluster<'_>) -> u64 {
    let status = cluster.weir(&["status", "--json", "--counters"]).json();
    let servers = status["servers"].as_object().unwrap().values();
    servers.filter_map(|server| server["counters"]["read.of_jobs"].as_u64()).sum()
}

/// What each process does: its own file is as it was written.
fn compares(mnt: &Path, place: &Path, rank: &str) -> String {
    format!("cmp {mnt}/f{rank} {place}/f{rank}", mnt = mnt.display(), place = place.display())
}

#[test]
fn what_a_launcher_has_started_is_a_job_and_nothing_else_is() {
    let place = Place::new();
    let cluster = place.up("jobs", &["--targets", "2"]);
    let (local, mnt) = (place.path("local"), cluster.mount("mnt", "rw"));
    std::fs::create_dir(&local).unwrap();
    for n in 0..RANKS {
        let bytes = noise(FILE_BYTES, n);
        std::fs::write(local.join(format!("f{n}")), &bytes).unwrap();
        std::fs::write(mnt.join(format!("f{n}")), &bytes).unwrap();
    }
    // Each time through a mount that has nothing in memory.
    cluster.umount(&mnt);
    let mnt = cluster.mount("plain", "ro");
    let plain = Command::new("sh").args(["-c", &compares(&mnt, &local, "0")]).status().unwrap();
    assert!(plain.success());
    assert_eq!(reads_of_jobs(&cluster), 0);

    let mnt = cluster.mount("run", "ro");
    let job = compares(&mnt, &local, "$WEIR_RANK");
    cluster.weir(&["run", "--job", "compare", "-n", "3", "--", "sh", "-c", &job]).ok();
    let by_run = reads_of_jobs(&cluster);
    assert!(by_run >= RANKS, "{by_run}");
    let explained = cluster.weir(&["explain", "compare", "-d", "0.1", "--json"]).json();
    let processes = explained[0]["processes"].as_array().unwrap();
    let ranks: Vec<_> = processes.iter().map(|process| process["rank"].as_u64()).collect();
    assert_eq!(ranks, [Some(0), Some(1), Some(2)], "{explained}");
    let read = processes.iter().map(|p| p["first_copy_bytes"].as_u64().unwrap());
    assert!(read.clone().all(|bytes| bytes >= FILE_BYTES as u64), "{explained}");
    let nobody = cluster.weir(&["explain", "no-such-job", "-d", "0.1"]);
    nobody.fails(&["no process of job no-such-job"]);

    let mnt = cluster.mount("mpi", "ro");
    let job = compares(&mnt, &local, "$OMPI_COMM_WORLD_RANK");
    let mut mpi = Command::new("mpirun");
    // As in `programs_mpi`.
    mpi.env("TMPDIR", place.path("."));
    mpi.args(["--allow-run-as-root", "--oversubscribe", "-n", "3", "sh", "-c", &job]);
    let Ok(status) = mpi.status() else {
        println!("skipped: needs mpirun (openmpi-bin)");
        return;
    };
    assert!(status.success());
    assert!(reads_of_jobs(&cluster) >= by_run + RANKS);
}

#[test]
fn a_process_says_which_ranges_of_a_file_it_reads() {
    const MIB: usize = 1 << 20;
    let place = Place::new();
    let cluster = place.up("ranges", &["--targets", "2"]);
    let mnt = cluster.mount("mnt", "rw");
    let bytes = noise(8 * MIB, 1);
    std::fs::write(mnt.join("f"), &bytes).unwrap();
    cluster.umount(&mnt);
    let mnt = cluster.mount("again", "rw");
    let work = |job: &str| {
        let explained = cluster.weir(&["explain", job, "-d", "0.1", "--json"]).json();
        let processes = explained[0]["processes"].as_array().unwrap().clone();
        let of = |p: &serde_json::Value| {
            (p["rank"].as_u64().unwrap(), p["work_mib"].as_u64().unwrap(), p["done"].as_f64())
        };
        processes.iter().map(of).collect::<Vec<_>>()
    };

    // By attributes of a file that it has open.
    let (job, ranges) = ("user.weir.job", "user.weir.ranges");
    let set =
        |name, value: &str| setxattr(mnt.join("f"), name, value.as_bytes(), XattrFlags::empty());
    assert_eq!(set(ranges, "0+1M").unwrap_err(), Errno::BADF, "it is not open");
    let file = File::open(mnt.join("f")).unwrap();
    assert_eq!(set(ranges, "all of it").unwrap_err(), Errno::INVAL);
    assert_eq!(set(job, "mine:3/3").unwrap_err(), Errno::INVAL);
    set(job, "mine:1/3").unwrap();
    set(ranges, "1M+1M,5M+512K,6M+1M").unwrap();
    let get = |name| {
        let mut value = [0; 64];
        getxattr(mnt.join("f"), name, &mut value[..])
            .map(|n| String::from_utf8_lossy(&value[..n]).into_owned())
    };
    assert_eq!(get(ranges).unwrap(), "1048576+1048576,5242880+524288,6291456+1048576");
    let mut part = vec![0; MIB];
    file.read_exact_at(&mut part, MIB as u64).unwrap();
    assert!(part == bytes[MIB..2 * MIB]);
    // Rounded up; the kernel may have read ahead some more.
    let of = work("mine");
    assert_eq!((of.len(), of[0].0, of[0].1), (1, 1, 3), "{of:?}");
    assert!(of[0].2.unwrap() < 0.99, "{of:?}");
    let begin = std::time::Instant::now();
    cluster.weir(&["explain", "mine", "--interval", "1.5", "--json"]).ok();
    assert!(begin.elapsed().as_millis() >= 1500, "{:?}", begin.elapsed());
    // It is of this process alone, and of no other file.
    let other = Command::new("getfattr").args(["-n", ranges]).arg(mnt.join("f")).output().unwrap();
    assert!(!other.status.success());
    removexattr(mnt.join("f"), ranges).unwrap();
    assert_eq!(get(ranges).unwrap_err(), Errno::NODATA);
    drop(file);
    // The kernel tells the mount of a last close after `close` has returned.
    harness::eventually("it is not open any more", || get(job) == Err(Errno::BADF));

    // By the environment.
    let read = format!("dd if={}/f of=/dev/null bs=1M skip=3 count=1", mnt.display());
    let run = ["run", "--job", "one", "--rank", "2", "--ranks", "4", "--ranges", "3M+2M", "--"];
    cluster.weir(&[&run[..], &["sh", "-c", &read]].concat()).ok();
    let of = work("one");
    assert_eq!((of.len(), of[0].0, of[0].1), (1, 2, 2), "{of:?}");
    let wrong = cluster.weir(&["run", "--ranges", "3M-5M", "--", "true"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("such as 0+64M"), "{}", wrong.err);

    // By hand: `weir run` sets nothing else. Each time through a mount that has nothing in memory.
    for (job, variable, value, mib) in [
        ("all", "WEIR_SHARED", "0", 8),
        ("share", "WEIR_SHARED", "1", 1),
        ("some", "WEIR_RANGES", "3M+5M", 5),
    ] {
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}/f", cluster.mount(job, "ro").display()));
        dd.args(["of=/dev/null", "bs=1M", "skip=3", "count=1"]);
        dd.env("WEIR_JOB", job).env("WEIR_RANK", "5").env("WEIR_RANKS", "8").env(variable, value);
        assert!(dd.status().unwrap().success());
        let of = work(job);
        assert_eq!((of.len(), of[0].0, of[0].1), (1, 5, mib), "{job}: {of:?}");
    }
}

#[test]
fn a_job_ends_with_all_its_processes_and_says_which_failed() {
    let place = Place::new();
    let weir = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.current_dir(place.path("")).args(arguments).output().unwrap()
    };
    let script = "sleep 0.$((3 - WEIR_RANK)); touch ended-$WEIR_RANK-$WEIR_RANKS-$WEIR_SHARED; \
                  exit $((WEIR_RANK * 7))";
    let ended = weir(&["run", "-n", "3", "--shared", "--", "sh", "-c", script]);
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("rank 2: exit status: 14"));
    for rank in 0..3 {
        assert!(place.path(&format!("ended-{rank}-3-1")).exists(), "{rank}");
    }
    let missing = weir(&["run", "--", "there-is-no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    let wrong = weir(&["run", "--job", "j", "--rank", "3", "--ranks", "3", "--", "true"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn who_ends_a_job_ends_its_processes() {
    let mut job = Command::new(env!("CARGO_BIN_EXE_weir"));
    job.args(["run", "-n", "2", "--", "sh", "-c", "echo; exec sleep 1000"]);
    let mut job = job.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // Both are there.
    let mut said = [0; 2];
    std::io::Read::read_exact(job.stdout.as_mut().unwrap(), &mut said).unwrap();
    let pid = rustix::process::Pid::from_child(&job);
    let begin = std::time::Instant::now();
    while job.try_wait().unwrap().is_none() {
        // It may not wait for signals yet.
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(begin.elapsed().as_secs() < 60, "it goes on");
    }
    // The processes have let go of what they would say.
    let mut rest = Vec::new();
    std::io::Read::read_to_end(job.stdout.as_mut().unwrap(), &mut rest).unwrap();
}

#[test]
fn who_ends_a_job_while_it_is_started_leaves_none_of_its_processes() {
    use std::os::unix::process::CommandExt;
    for delay_ms in 0..30 {
        let mut job = Command::new(env!("CARGO_BIN_EXE_weir"));
        job.args(["run", "-n", "3", "--", "sleep", "1000"]).process_group(0);
        let mut job = job.spawn().unwrap();
        let group = rustix::process::Pid::from_child(&job);
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        rustix::process::kill_process(group, rustix::process::Signal::TERM).unwrap();
        job.wait().unwrap();
        let is_gone = || rustix::process::test_kill_process_group(group).is_err();
        harness::eventually("none of its processes is left", is_gone);
    }
}
