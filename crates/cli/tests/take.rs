//! `weir take`: files that the processes of a job read together.

use crate::harness::{self, Cluster, Place, eventually};
use rustix::io::ioctl_fionread;
use std::io::Read;
use std::process::{Child, Stdio};

/// A block that does not fit may leave a part of the pipe empty.
const HALF_A_PIPE: u64 = 32 << 10;

/// Lines of different lengths, some of them longer than a block.
fn lines(file: u32) -> Vec<String> {
    let len = |n: usize| if n % 5_000 == 1_234 { 150_000 } else { n % 97 };
    (0..20_000).map(|n| format!("{file} {n} {}", "x".repeat(len(n)))).collect()
}

/// Three files with different layouts, the last line of one without its end, and an empty one; all
/// their lines, sorted.
fn write_files(place: &Place, cluster: &Cluster<'_>) -> Vec<String> {
    let layouts: [&[&str]; 3] = [
        &["--layout", "striped", "--unit", "64K"],
        &["--layout", "chunked", "--chunk", "1M", "--copies", "2"],
        &["--layout", "striped", "--count", "1"],
    ];
    let mut all = Vec::new();
    cluster.weir(&["mkdir", "weir:/in"]).ok();
    for (n, layout) in (0..).zip(layouts) {
        let (local, remote) = (place.path(&format!("in{n}")), format!("weir:/in/{n}"));
        let lines = lines(n);
        let end = if n == 1 { "" } else { "\n" };
        std::fs::write(&local, lines.join("\n") + end).unwrap();
        cluster.weir(&[&["mkfile"], layout, &[&remote]].concat()).ok();
        cluster.weir(&["cp", "--quiet", local.to_str().unwrap(), &remote]).ok();
        all.extend(lines);
    }
    cluster.weir(&["mkfile", "weir:/in/empty"]).ok();
    all.sort_unstable();
    all
}

/// Runs a command in each process of a job.
fn run(cluster: &Cluster<'_>, job: &[&str], ranks: &str, script: &str) -> harness::Said {
    let weir = env!("CARGO_BIN_EXE_weir");
    let script = script.replace("weir take", &format!("{weir} take"));
    let order = [&["run"], job, &["-n", ranks, "--", "sh", "-c", &script]].concat();
    harness::said(cluster.command(&order))
}

/// What is JSON of what was said.
fn told_of(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter(|line| line.starts_with('{'))
}

/// The lines that all processes have had.
fn parts(place: &Place, ranks: u32) -> Vec<String> {
    let part = |rank| std::fs::read_to_string(place.path(&format!("part.{rank}"))).unwrap();
    let mut all: Vec<String> = (0..ranks)
        .flat_map(|rank| part(rank).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    all.sort_unstable();
    all
}

/// The claims that are left.
fn claims(cluster: &Cluster<'_>) -> Vec<String> {
    let names = cluster.weir(&["ls", "-a", "weir:/in"]).ok();
    names.lines().filter(|name| name.starts_with(".weir-take-")).map(str::to_owned).collect()
}

#[test]
fn every_line_is_had_by_one_process_and_once_more_in_the_next_run() {
    let place = Place::new();
    let cluster = place.up("take", &["--targets", "4"]);
    let all = write_files(&place, &cluster);
    let to = place.path("part");
    let take = |name: &&str| {
        let to = to.display();
        format!("weir take --job {name} --json --block 64K weir:/in > {to}.$WEIR_RANK")
    };
    // The same name for two runs, one after the other, and a round more in the second one.
    for names in [&["first"][..], &["first", "second"]] {
        let rounds = names.len();
        let script = names.iter().map(take).collect::<Vec<_>>().join(" && ");
        let said = run(&cluster, &["--job", "sort"], "4", &script);
        let told: Vec<serde_json::Value> =
            told_of(&said.err).map(|line| serde_json::from_str(line).expect(line)).collect();
        let sum = |key: &str| told.iter().map(|told| told[key].as_u64().unwrap()).sum::<u64>();
        said.ok();
        assert_eq!(told.len(), 4 * rounds);
        // All servers are on this machine.
        assert!(sum("local_bytes") > 0 && sum("other_bytes") == 0, "{told:?}");
        let found = parts(&place, 4);
        assert!(found == all, "{} lines of {}", found.len(), all.len());
        assert_eq!(claims(&cluster), Vec::<String>::new());
    }
    // One that is no job has all, and without a name no other has taken any of it.
    for _ in 0..2 {
        let alone = cluster.weir(&["take", "weir:/in/0", "weir:/in/1", "weir:/in/2"]).ok();
        let mut alone: Vec<&str> = alone.lines().collect();
        alone.sort_unstable();
        assert!(alone == all, "{} lines of {}", alone.len(), all.len());
    }
}

/// A process of a job of three, whose output nobody reads.
fn start(cluster: &Cluster<'_>, rank: &str) -> Child {
    let mut command = cluster.command(&["take", "--block", "64K", "--job", "kill", "weir:/in"]);
    command.env("WEIR_JOB", "any").env("WEIR_RANK", rank).env("WEIR_RANKS", "3");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What it has had, and whether it has ended well; what it said.
fn output(mut child: Child) -> (String, bool, String) {
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (out, child.wait().unwrap().success(), err)
}

#[test]
fn what_one_took_that_was_killed_nobody_has_and_nobody_takes_its_place() {
    let place = Place::new();
    let cluster = place.up("killed", &["--targets", "3"]);
    let all = write_files(&place, &cluster);
    let mut killed = start(&cluster, "0");
    // It has begun, and its output is full: there is more to say than any pipe holds.
    let mut before = 0;
    eventually("it waits for who reads", || {
        let waiting = ioctl_fionread(killed.stdout.as_ref().unwrap()).unwrap();
        std::mem::replace(&mut before, waiting) == waiting && waiting > HALF_A_PIPE
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    let others = [start(&cluster, "1"), start(&cluster, "2")].map(|child| {
        let reader = std::thread::spawn(move || output(child));
        reader.join().unwrap()
    });
    let mut found: Vec<&str> = others.iter().flat_map(|(out, ..)| out.lines()).collect();
    found.sort_unstable();
    let whole: Vec<&str> = all.iter().map(String::as_str).collect();
    assert!(others.iter().all(|(_, is_well, _)| *is_well), "{:?}", others.map(|(.., err)| err));
    // Two blocks that it had read or was reading, of at least one line each, and all else.
    assert!(found.len() < whole.len() && found.len() > whole.len() / 2, "{}", found.len());
    assert!(found.iter().all(|line| whole.binary_search(line).is_ok()));
    assert!(found.windows(2).all(|pair| pair[0] != pair[1]), "a line was had twice");
    // The next run of that name is told, and says what to do.
    let (_, is_well, err) = output(start(&cluster, "0"));
    assert!(!is_well && err.contains("process 0") && err.contains("has died"), "{err}");
    let left = claims(&cluster);
    assert_eq!(left.len(), 1);
    cluster.weir(&["rm", &format!("weir:/in/{}", left[0])]).ok();
    let mut again = cluster.command(&["take", "--job", "kill", "weir:/in"]);
    again.env("WEIR_RANK", "0").env("WEIR_RANKS", "1").env("WEIR_JOB", "any");
    let again = harness::said(again).ok();
    assert_eq!(again.lines().count(), all.len());
}

#[test]
fn what_cannot_be_taken_together_is_refused_with_a_way_out() {
    let place = Place::new();
    let cluster = place.up("refused", &["--targets", "2"]);
    let local = place.path("a");
    std::fs::write(&local, vec![b'a'; 804]).unwrap();
    cluster.weir(&["mkdir", "weir:/state"]).ok();
    for name in ["a", "b"] {
        cluster.weir(&["cp", "--quiet", local.to_str().unwrap(), &format!("weir:/{name}")]).ok();
    }
    let take = |arguments: &[&str], rank: &str| {
        let mut command = cluster.command(&[&["take"], arguments].concat());
        command.env("WEIR_JOB", "job").env("WEIR_RANK", rank).env("WEIR_RANKS", "3");
        harness::said(command)
    };
    // One of three: the claims stay.
    let out = take(&["--record", "4", "--state", "weir:/state", "weir:/a"], "0").ok();
    assert_eq!(out.len(), 804);
    let with_state =
        |more: &[&str], rank| take(&[&["--state", "weir:/state"], more].concat(), rank);
    with_state(&["weir:/b"], "1").fails(&["other processes", "in the place of weir:/b"]);
    with_state(&["weir:/a", "weir:/b"], "1").fails(&["1 files, and not 2"]);
    with_state(&["--block", "64K", "weir:/a"], "1").fails(&["blocks of 4194304 bytes"]);
    with_state(&["weir:/a"], "3").fails(&["process 3 of 3"]);
    // A late process gets nothing.
    assert_eq!(with_state(&["weir:/a"], "1").ok(), "");
    take(&["--record", "8", "weir:/a"], "0").fails(&["4 bytes are left", "weir:/a"]);
    take(&["--record", "1G", "weir:/a"], "0").fails(&["64 MiB"]);
    take(&["--block", "1", "weir:/a"], "0").fails(&["4 KiB to 64 MiB"]);
    take(&["weir:/no"], "0").fails(&["weir:/no", "no such file"]);
    take(&["--state", "weir:/a", "weir:/a"], "0").fails(&["not a directory"]);
    cluster.weir(&["take", "--job", "x", "weir:/a"]).fails(&["which process", "weir run -n"]);
    let mut unnamed = cluster.command(&["take", "weir:/a"]);
    unnamed.env("PMI_RANK", "0").env("PMI_SIZE", "2");
    harness::said(unnamed).fails(&["no name", "--job"]);
}
