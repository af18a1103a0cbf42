//! `weir testbed`: machines come up, clients sit behind links, and nothing is left of them.

use crate::harness::{self, Place, Said, WEIR};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const BYTES: usize = 3_000_000;

/// A testbed in a directory of its own; gone in the end, even by a panic.
struct Testbed {
    place: Place,
    dir: PathBuf,
    /// The same, by a link to the directory above.
    link: PathBuf,
}

impl Testbed {
    /// `None`: this machine, or this user, cannot.
    fn up(arguments: &[&str]) -> Option<Self> {
        let lacks = weir_testbed::missing_for_networks()
            .or_else(weir_testbed::missing_for_models)
            .or_else(weir_testbed::missing_for_cold);
        if let Some(what) = lacks {
            println!("skipped: needs {what}");
            return None;
        }
        let place = Place::new();
        let (real, link) = (place.path("real"), place.path("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let dir = real.canonicalize().unwrap().join("testbed");
        let testbed = Self { dir, link: link.join("testbed"), place };
        testbed.weir("up", arguments).ok();
        Some(testbed)
    }

    fn weir(&self, verb: &str, arguments: &[&str]) -> Said {
        // It is found again however it was called when it was made.
        let dir = if verb == "up" { &self.link } else { &self.dir };
        let dir = dir.to_str().unwrap();
        self.place.weir(&[&["testbed", verb, "--dir", dir], arguments].concat())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.weir("status", &["--json"]).ok()).unwrap()
    }

    /// The number of a daemon's process, by its file in a `run` directory.
    fn pid(&self, file: &str) -> String {
        let text = std::fs::read_to_string(self.dir.join(file)).unwrap();
        text.split(' ').next().unwrap().to_owned()
    }

    /// Neither files, mounts, devices, namespaces, groups nor processes.
    fn assert_gone(&self, namespaces: &[String]) {
        assert!(!self.dir.exists());
        let dir = self.dir.to_str().unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(dir), "{mounts}");
        let devices = Command::new("losetup").arg("--list").output().unwrap().stdout;
        assert!(!String::from_utf8_lossy(&devices).contains(dir));
        for name in namespaces {
            assert!(!Path::new("/run/netns").join(name).exists(), "{name} is still there");
        }
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            assert!(!words.contains(dir), "{words} still runs");
        }
    }

    /// The namespaces of its daemons and of its switch.
    fn namespaces(&self) -> Vec<String> {
        let links = std::fs::read_dir(self.dir.join("cluster/run")).unwrap().flatten();
        let links = links.map(|entry| entry.path()).filter(|path| path.is_symlink());
        let name = |path: PathBuf| {
            let to = std::fs::read_link(path).unwrap();
            to.file_name().unwrap().to_str().unwrap().to_owned()
        };
        let mut names: Vec<String> = links.map(name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 3, "{names:?}");
        let switch = names[0].rsplit_once('-').unwrap().0.to_owned();
        names.push(switch);
        names
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if self.dir.exists() {
            let said = self.weir("down", &[]);
            eprintln!("{}{}", said.out, said.err);
        }
    }
}

/// The first number in a text that stands before this word.
fn number_before(text: &str, word: &str) -> f64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|is| *is == word).unwrap_or_else(|| panic!("{word}: {text}"));
    words[at - 1].parse().unwrap()
}

/// Something, and not more than there is; so much in the first second besides as buckets let
/// through at once.
fn assert_took(said: &str) {
    let (mb, part) = (number_before(said, "MB"), number_before(said, "%"));
    assert!(mb > 0.0 && part <= 125.0, "{said}");
}

#[test]
fn a_file_goes_through_links_and_heads_and_all_of_it_goes_again() {
    let small = ["now", "--nodes", "3", "--clients", "1", "--disk-size", "64M"];
    let quick = ["--disk-rate", "20MB", "--link-rate", "20MB"];
    let Some(testbed) = Testbed::up(&[&small[..], &quick].concat()) else { return };
    let namespaces = testbed.namespaces();
    let log = std::fs::read_to_string(testbed.dir.join("log/disk-1.log")).unwrap();
    assert!(log.contains("the disk of node 1 is at"), "{log}");
    let again = testbed.weir("up", &["now"]);
    assert!(again.code == Some(1) && again.err.contains("there is a testbed"), "{again:?}");

    // A mount behind the link of a client.
    let at = testbed.place.path("mount");
    std::fs::create_dir(&at).unwrap();
    let at_text = at.to_str().unwrap();
    testbed.weir("run", &["4", "--", WEIR, "mount", at_text]).ok();
    let bytes: Vec<u8> = (0..BYTES).map(|n| (n / 7 % 251) as u8).collect();
    std::fs::write(at.join("file"), &bytes).unwrap();
    let refused = testbed.weir("run", &["5", "--", "true"]);
    assert!(refused.err.contains("there is no node 5, they are 1 to 4"), "{refused:?}");
    // From outside nobody gets in: servers listen in there only.
    let cluster = testbed.dir.join("cluster");
    let outside = testbed.place.weir(&["ls", "--dir", cluster.to_str().unwrap(), "weir:/"]);
    assert_ne!(outside.code, Some(0));

    // All of it comes from the disks once it is cold, by the kernel's count.
    let proof = testbed.weir("cold", &["--node", "4", "weir:/file"]).ok();
    assert!(proof.contains(&format!("weir:/file: {BYTES} bytes")), "{proof}");
    assert_eq!(std::fs::read(at.join("file")).unwrap(), bytes);
    let status = testbed.status();
    let sum = |what: &dyn Fn(&Value) -> &Value| -> u64 {
        let nodes = status["nodes"].as_array().unwrap();
        nodes.iter().filter_map(|node| what(node).as_u64()).sum()
    };
    let read = sum(&|node| &node["disk"]["read_bytes"]);
    assert!(read >= 2 * BYTES as u64, "{read}");
    // Written, read for the proof, and read for the comparison.
    let client = &status["nodes"][3]["link"];
    assert!(client["in_bytes"].as_u64().unwrap() >= 2 * BYTES as u64, "{client}");
    assert!(client["out_bytes"].as_u64().unwrap() >= BYTES as u64, "{client}");

    let said = testbed.weir("perturb", &["--disk", "2", "--share", "50%", "--seconds", "1"]).ok();
    assert_took(&said);
    // All of it came from the disk, by the kernel's count.
    let own = said.split(", ").find_map(|part| part.split_once(" MB of it")).unwrap().0;
    assert!(own.parse::<f64>().unwrap() >= number_before(&said, "MB"), "{said}");
    let said = testbed.weir("perturb", &["--link", "2", "--share", "50%", "--seconds", "1"]).ok();
    assert_took(&said);

    testbed.weir("down", &[]).ok();
    testbed.assert_gone(&namespaces);
    assert!(testbed.weir("status", &[]).err.contains("there is no testbed"));
}

#[test]
fn what_is_half_gone_goes_whole() {
    let Some(testbed) = Testbed::up(&["now", "--nodes", "3", "--disk-size", "64M"]) else { return };
    let namespaces = testbed.namespaces();
    let dir = testbed.dir.clone();
    // Another process reads from the third one's disk.
    let perturb = ["testbed", "perturb", "--dir", dir.to_str().unwrap(), "--disk", "3"];
    let perturb = [&perturb[..], &["--seconds", "3600"]].concat();
    let mut perturber = testbed.place.command(&perturb).spawn().unwrap();
    harness::eventually("it has the file open that it reads", || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", perturber.id())).unwrap().flatten();
        let mut files = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        files.any(|file| file.ends_with("disks/3/perturbed"))
    });
    // A server, the head below another one, a third one's disk, and a network.
    for file in ["cluster/run/data-1.pid", "run/disk-2.pid"] {
        assert!(Command::new("kill").args(["-9", &testbed.pid(file)]).status().unwrap().success());
    }
    let unmounted = Command::new("umount").arg("-l").arg(dir.join("disks/3")).status();
    assert!(unmounted.unwrap().success());
    let network = Command::new("ip").args(["netns", "del", &namespaces[0]]).status();
    assert!(network.unwrap().success());
    testbed.weir("down", &[]).ok();
    assert!(!perturber.wait().unwrap().success());
    testbed.assert_gone(&namespaces);
}

#[test]
fn plain_disks_are_limited_and_what_cannot_be_made_leaves_nothing() {
    let small = ["arkansas", "--nodes", "3", "--disk-size", "64M", "--read-ahead-kib", "96"];
    let Some(testbed) = Testbed::up(&small) else { return };
    let disk = std::fs::metadata(testbed.dir.join("disks/1")).unwrap().dev();
    let queue =
        format!("/sys/dev/block/{}:{}/queue", rustix::fs::major(disk), rustix::fs::minor(disk));
    assert_eq!(std::fs::read_to_string(queue + "/read_ahead_kb").unwrap().trim(), "96");
    let namespaces = testbed.namespaces();
    let said = testbed.weir("perturb", &["--disk", "1", "--share", "50%", "--seconds", "1"]).ok();
    assert_took(&said);
    // A server that was killed is started again in its network.
    let kill = Command::new("kill").args(["-9", &testbed.pid("cluster/run/data-2.pid")]).status();
    assert!(kill.unwrap().success());
    harness::eventually("the server is gone", || {
        testbed.status()["nodes"][1]["disk"]["serves"] == false
    });
    testbed.weir("run", &["1", "--", WEIR, "up"]).ok();
    assert_eq!(testbed.status()["nodes"][1]["disk"]["serves"], true);
    // Other files stay, and nothing is made beside them.
    let mine = testbed.dir.join("mine");
    std::fs::write(&mine, "mine").unwrap();
    let said = testbed.weir("down", &[]);
    assert!(said.code == Some(0) && said.err.contains("something else is in it"), "{said:?}");
    let said = testbed.weir("up", &["now"]);
    assert!(said.code == Some(1) && said.err.contains("is not empty"), "{said:?}");
    assert_eq!(std::fs::read_dir(&testbed.dir).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(&mine).unwrap(), "mine");
    std::fs::remove_file(&mine).unwrap();
    std::fs::remove_dir(&testbed.dir).unwrap();
    let blank = testbed.place.path("a blank");
    let said = testbed.place.weir(&["testbed", "up", "now", "--dir", blank.to_str().unwrap()]);
    assert!(said.err.contains("has no blanks") && !blank.exists(), "{said:?}");
    let group = namespaces.last().unwrap();
    assert!(!Path::new("/sys/fs/cgroup/blkio").join(group).exists());
    // No room for a file system.
    let said = testbed.weir("up", &["now", "--nodes", "3", "--disk-size", "8K"]);
    assert!(said.code == Some(1) && said.err.contains("mkfs.ext4"), "{said:?}");
    testbed.assert_gone(&namespaces);
    let said = testbed.weir("up", &["pdp11"]);
    assert!(said.err.contains("there is no profile 'pdp11'"), "{said:?}");
    testbed.assert_gone(&namespaces);
}

#[test]
fn profiles_are_listed_for_people_and_for_programs() {
    let place = Place::new();
    let listed = place.weir(&["testbed", "profiles"]).ok();
    let profiles = place.weir(&["testbed", "profiles", "--json"]).json();
    let profiles = profiles.as_array().unwrap();
    assert_eq!(profiles.len(), listed.lines().count() - 1, "{listed}");
    for profile in profiles {
        assert!(listed.contains(profile["name"].as_str().unwrap()), "{listed}");
        assert!(profile["nodes"].as_u64() > Some(0) && profile["link_rate"].as_u64() > Some(0));
        assert!(profile["link_queue"].as_u64() > Some(0));
    }
}

#[test]
fn servers_of_a_node_have_no_more_memory_than_it_has() {
    let root = Path::new("/sys/fs/cgroup/memory");
    if !root.join("memory.limit_in_bytes").exists() {
        println!("skipped: needs the memory controller of cgroup v1");
        return;
    }
    let size = ["--nodes", "2", "--disk-size", "64M"];
    let Some(testbed) = Testbed::up(&[&["arkansas", "--memory"], &size[..]].concat()) else {
        return;
    };
    let status = testbed.status();
    let name = status["name"].as_str().unwrap();
    for (node, daemons) in [(1, &["data-1", "meta"][..]), (2, &["data-2"])] {
        let group = root.join(format!("{name}-{node}"));
        let said = |file: &str| std::fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(said("memory.limit_in_bytes").trim(), (256 << 20).to_string());
        let members = said("cgroup.procs");
        let mut members: Vec<String> = members.lines().map(str::to_owned).collect();
        let pid = |daemon: &&str| testbed.pid(&format!("cluster/run/{daemon}.pid"));
        let mut expected: Vec<String> = daemons.iter().map(pid).collect();
        [&mut members, &mut expected].into_iter().for_each(|pids| pids.sort_unstable());
        assert_eq!(members, expected);
        assert_eq!(status["nodes"][node - 1]["disk"]["memory_bytes"], 256 << 20);
    }
    testbed.weir("down", &[]).ok();
    assert!([1, 2].iter().all(|node| !root.join(format!("{name}-{node}")).exists()));
    let none = Place::new();
    let dir = none.path("t");
    let said = ["testbed", "up", "now", "--memory", "--dir", dir.to_str().unwrap()];
    none.weir(&said).fails(&["nobody says how much memory the nodes of 'now' have"]);
    assert!(!dir.exists());
}
