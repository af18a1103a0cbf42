//! `weir testbed`: machines come up, clients sit behind links, and nothing is left of them.
#![allow(clippy::unwrap_used)] // A failed helper fails the test.

mod harness;

use harness::{Place, Said, WEIR};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const BYTES: usize = 3_000_000;

/// A testbed in a directory of its own; gone in the end, even by a panic.
struct Testbed {
    place: Place,
    dir: PathBuf,
}

impl Testbed {
    /// `None`: this machine, or this user, cannot.
    fn up(arguments: &[&str]) -> Option<Self> {
        let lacks = weir_testbed::missing_for_networks().or(weir_testbed::missing_for_models());
        if let Some(what) = lacks {
            println!("skipped: needs {what}");
            return None;
        }
        let place = Place::new();
        let testbed = Self { dir: place.path("testbed"), place };
        testbed.weir("up", arguments).ok();
        Some(testbed)
    }

    fn weir(&self, verb: &str, arguments: &[&str]) -> Said {
        let dir = self.dir.to_str().unwrap();
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

#[test]
fn a_file_goes_through_links_and_heads_and_all_of_it_goes_again() {
    let small = ["now", "--nodes", "3", "--clients", "1", "--disk-size", "64M"];
    let quick = ["--disk-rate", "20MB", "--link-rate", "20MB"];
    let Some(testbed) = Testbed::up(&[&small[..], &quick].concat()) else { return };
    let namespaces = testbed.namespaces();
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
    let (part, mb) = (number_before(&said, "%"), number_before(&said, "MB"));
    assert!((10.0..=60.0).contains(&part) && said.contains(&format!("{mb} MB of it")), "{said}");
    let said = testbed.weir("perturb", &["--link", "2", "--share", "50%", "--seconds", "1"]).ok();
    assert!((10.0..=60.0).contains(&number_before(&said, "%")), "{said}");

    testbed.weir("down", &[]).ok();
    testbed.assert_gone(&namespaces);
    assert!(testbed.weir("status", &[]).err.contains("there is no testbed"));
}

#[test]
fn what_is_half_gone_goes_whole() {
    let Some(testbed) = Testbed::up(&["now", "--nodes", "3", "--disk-size", "64M"]) else { return };
    let namespaces = testbed.namespaces();
    let dir = testbed.dir.clone();
    // A server, the head below another one, a third one's disk, and a network.
    for file in ["cluster/run/data-1.pid", "run/disk-2.pid"] {
        assert!(Command::new("kill").args(["-9", &testbed.pid(file)]).status().unwrap().success());
    }
    let unmounted = Command::new("umount").arg("-l").arg(dir.join("disks/3")).status();
    assert!(unmounted.unwrap().success());
    let network = Command::new("ip").args(["netns", "del", &namespaces[0]]).status();
    assert!(network.unwrap().success());
    testbed.weir("down", &[]).ok();
    testbed.assert_gone(&namespaces);
}

#[test]
fn plain_disks_are_limited_and_what_cannot_be_made_leaves_nothing() {
    let Some(testbed) = Testbed::up(&["act", "--nodes", "3", "--disk-size", "64M"]) else { return };
    let namespaces = testbed.namespaces();
    let said = testbed.weir("perturb", &["--disk", "1", "--share", "50%", "--seconds", "1"]).ok();
    assert!((10.0..=75.0).contains(&number_before(&said, "%")), "{said}");
    // A server that was killed is started again in its network.
    let kill = Command::new("kill").args(["-9", &testbed.pid("cluster/run/data-2.pid")]).status();
    assert!(kill.unwrap().success());
    harness::eventually("the server is gone", || {
        testbed.status()["nodes"][1]["disk"]["serves"] == false
    });
    testbed.weir("run", &["1", "--", WEIR, "up"]).ok();
    assert_eq!(testbed.status()["nodes"][1]["disk"]["serves"], true);
    testbed.weir("down", &[]).ok();
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
