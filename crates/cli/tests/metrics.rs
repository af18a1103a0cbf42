//! What daemons tell Prometheus: as `docs/metrics.md` says, and without being hindered.

use crate::harness::{self, Cluster, Place, SOON, eventually, noise};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A page as an HTTP client gets it: without its head.
pub fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", page.len())), "{head}");
    page.to_owned()
}

/// A page as Prometheus reads it.
struct Page {
    /// The type of each family.
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
        let mut family = String::new();
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "HELP", name, _] => name.clone_into(&mut family),
                ["#", "TYPE", name, kind] => {
                    assert_eq!(name, family, "after its HELP");
                    let twice = kinds.insert(name.to_owned(), kind.to_owned());
                    assert!(twice.is_none(), "{name} is there twice");
                }
                _ => {
                    let (sample, value) = line.rsplit_once(' ').unwrap();
                    let name = sample.split('{').next().unwrap();
                    let suffixes = ["_bucket", "_sum", "_count"];
                    let of_histogram = suffixes.iter().filter_map(|s| name.strip_suffix(s)).next();
                    let whose = match kinds[&family].as_str() {
                        "histogram" => of_histogram.unwrap(),
                        _ => name,
                    };
                    assert_eq!(whose, family, "{line}");
                    assert!(samples.insert(sample.to_owned(), value.parse().unwrap()).is_none());
                }
            }
        }
        Self { kinds, samples }
    }

    /// The sum of the samples of a name with this label in them.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let is = |sample: &str| {
            sample.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
                && sample.contains(label)
        };
        self.samples.iter().filter(|(sample, _)| is(sample)).map(|(_, value)| value).sum()
    }

    /// Buckets grow, and the last one has all.
    fn check_histograms(&self) {
        for (family, _) in self.kinds.iter().filter(|(_, kind)| *kind == "histogram") {
            for (sample, count) in &self.samples {
                let Some(labels) = sample.strip_prefix(&format!("{family}_count")) else {
                    continue;
                };
                let labels = labels.trim_end_matches('}').trim_start_matches('{');
                let own = format!("{family}_bucket{{{labels}");
                let bound = |sample: &str| -> f64 {
                    let at = sample.split("le=\"").nth(1).unwrap();
                    at.trim_end_matches("\"}").replace("+Inf", "inf").parse().unwrap()
                };
                let of_it = self.samples.iter().filter(|(sample, _)| sample.starts_with(&own));
                let mut buckets: Vec<(f64, f64)> =
                    of_it.map(|(sample, below)| (bound(sample), *below)).collect();
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{sample}");
                assert_eq!(buckets.last().unwrap(), &(f64::INFINITY, *count), "{sample}");
            }
        }
    }
}

/// Where each daemon and then each mount serves metrics, as `weir status` says.
fn addresses(cluster: &Cluster<'_>) -> BTreeMap<String, String> {
    let status = cluster.weir(&["status", "--json"]).json();
    let daemons = status["daemons"].as_array().unwrap().iter().map(|d| (&d["name"], &d["metrics"]));
    let mounts = status["mount_daemons"].as_array().unwrap().iter();
    let all = daemons.chain(mounts.map(|m| (&m["mountpoint"], &m["metrics"])));
    all.map(|(name, at)| (name.as_str().unwrap().to_owned(), at.as_str().unwrap().to_owned()))
        .collect()
}

fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let names: BTreeSet<String> = rows.map(str::to_owned).collect();
    assert!(names.len() > 80, "{names:?}");
    names
}

/// Whether Prometheus's own program finds nothing wrong with a page, where it is installed.
fn check_with_promtool(page: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut tool) = command.stdout(Stdio::null()).spawn() else { return };
    tool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn daemons_serve_the_metrics_that_are_documented_and_no_others() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2", "--metrics"]);
    let mnt = cluster.mount("m", "rw");
    cluster.weir(&["setlayout", "--copies", "2", "--count", "2", "weir:/"]).ok();
    let bytes = noise(3 << 20, 5);
    fs::write(mnt.join("f"), &bytes).unwrap();
    fs::File::open(mnt.join("f")).unwrap().sync_all().unwrap();
    cluster.weir(&["cat", "/f"]).ok();
    fs::read(mnt.join("none")).unwrap_err();
    // One that comes later has them, too.
    cluster.weir(&["server", "add"]).ok();

    let addresses = addresses(&cluster);
    assert_eq!(addresses.len(), 5, "{addresses:?}");
    let ports: BTreeSet<&String> = addresses.values().collect();
    assert_eq!(ports.len(), 5, "no two have one port");
    let shown = cluster.weir(&["status"]).ok();
    for address in addresses.values() {
        assert!(shown.contains(&format!("http://{address}/metrics")), "{shown}");
        assert!(address.parse::<SocketAddr>().unwrap().ip().is_loopback());
    }

    let pages: BTreeMap<&str, Page> = addresses
        .iter()
        .map(|(name, address)| {
            let text = scrape(address);
            check_with_promtool(&text);
            let page = Page::parse(&text);
            page.check_histograms();
            (name.as_str(), page)
        })
        .collect();
    let served: BTreeSet<String> = pages.values().flat_map(|p| p.kinds.keys().cloned()).collect();
    let documented = documented();
    let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| -> Vec<String> {
        a.difference(b).cloned().collect()
    };
    assert_eq!(only(&served, &documented), [""; 0], "not documented");
    assert_eq!(only(&documented, &served), [""; 0], "documented, and not served");

    // What was done is counted.
    let sum = |daemon: &str, name: &str, label: &str| pages[daemon].sum(name, label);
    let size = bytes.len() as f64;
    let written = ["data-1", "data-2"].map(|d| sum(d, "weir_target_written_bytes_total", ""));
    assert!(written.iter().sum::<f64>() >= 2.0 * size, "{written:?}");
    let writes = "op=\"write\"";
    assert!(sum("data-1", "weir_data_request_duration_seconds_count", writes) > 0.0);
    assert!(sum("data-1", "weir_target_disk_duration_seconds_count", "op=\"change\"") > 0.0);
    assert!(sum("meta", "weir_meta_request_duration_seconds_count", "answer=\"now\"") > 0.0);
    assert_eq!(sum("meta", "weir_target_state", "state=\"online\""), 3.0);
    let disk = rustix::fs::statvfs(cluster.dir().join("meta")).unwrap();
    let size_of_disk = (disk.f_blocks * disk.f_frsize) as f64;
    assert_eq!(sum("meta", "weir_meta_disk_size_bytes", ""), size_of_disk);
    let free = sum("meta", "weir_meta_disk_free_bytes", "");
    assert!(free > 0.0 && free < size_of_disk, "{free}");
    let mount = mnt.display().to_string();
    assert!(sum(&mount, "weir_mount_operation_duration_seconds_count", writes) > 0.0);
    assert!(sum(&mount, "weir_client_bytes_total", "kind=\"write\"") >= size);
    assert_eq!(sum(&mount, "weir_mount_operation_failures_total", ""), 0.0, "ENOENT is none");
    for (daemon, page) in &pages {
        assert!(page.sum("process_resident_memory_bytes", "") > 1e6, "{daemon}");
    }
}

#[test]
fn who_asks_for_metrics_hinders_no_daemon() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1", "--metrics"]);
    let mnt = cluster.mount("m", "rw");
    let addresses = addresses(&cluster);
    // Some say nothing, some not all, and some take nothing of the answers.
    let mut idle = Vec::new();
    for address in addresses.values() {
        for said in ["", "GET /met", "GET /metrics HTTP/1.1\r\n\r\n"].iter().cycle().take(30) {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(said.as_bytes()).unwrap();
            idle.push(stream);
        }
    }
    let begin = Instant::now();
    let bytes = noise(1 << 20, 3);
    for n in 0..20 {
        fs::write(mnt.join(format!("f{n}")), &bytes).unwrap();
        assert!(fs::read(mnt.join(format!("f{n}"))).unwrap() == bytes);
    }
    cluster.weir(&["status"]).ok();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    drop(idle);
    for address in addresses.values() {
        scrape(address);
    }
    // Another program has the port: the daemon serves without metrics, and reports this.
    cluster.kill("data-1");
    let address: SocketAddr = addresses["data-1"].parse().unwrap();
    let mut taken = None;
    eventually("the port can be had", || {
        taken = TcpListener::bind(address).ok();
        taken.is_some()
    });
    cluster.weir(&["up"]).ok();
    assert!(fs::read(mnt.join("f7")).unwrap() == bytes);
    let status = cluster.weir(&["status"]).ok();
    let note = format!("NOTE: the metrics of data-1 cannot be had at {address}");
    assert!(status.contains(&note) && status.contains("All is well."), "{status}");
    let log = cluster.weir(&["log", "data-1"]).ok();
    assert!(log.contains("metrics are not served"), "{log}");
}

#[test]
fn addresses_of_metrics_that_are_none_are_refused() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    assert!(cluster.weir(&["status", "--json"]).json()["daemons"][0]["metrics"].is_null());
    fs::create_dir(place.path("m")).unwrap();
    let refused = cluster.weir(&["mount", "m", "-o", "metrics=7810"]);
    refused.fails(&["metrics = '7810'", "127.0.0.1:7800"]);
    cluster.weir(&["mount", "m", "-o", "metrics=127.0.0.1:0"]).ok();
    let status = cluster.weir(&["status", "--json"]).json();
    scrape(status["mount_daemons"][0]["metrics"].as_str().unwrap());
}

#[test]
fn metrics_are_switched_on_when_no_target_is_missing_and_what_has_died_was_started() {
    let place = Place::new();
    let cluster = place.up("late", &["--targets", "2"]);
    let daemons = ["meta", "data-1", "data-2"];
    let pids = || daemons.map(|daemon| cluster.pid(daemon));
    let before = pids();
    let stopped = cluster.stopped(&["data-2"]);
    harness::eventually("a target is offline", || {
        let targets = cluster.weir(&["targets", "--json"]).json();
        targets.as_array().unwrap().iter().any(|target| target["state"] == "offline")
    });
    let up = ["up", "--metrics", "127.0.0.1"];
    cluster.weir(&up).fails(&["1 targets are not online", "weir status"]);
    assert_eq!(pids(), before, "nothing was started anew");
    drop(stopped);
    cluster.kill("data-2");
    cluster.weir(&up).ok();
    let status = cluster.weir(&["status", "--json"]).json();
    let served = status["daemons"].as_array().unwrap();
    assert!(served.len() == 3 && served.iter().all(|it| it["metrics"].is_string()), "{status}");
}

#[test]
fn metrics_are_switched_on_of_a_cluster_that_runs() {
    let place = Place::new();
    let cluster = place.up("late", &["--targets", "2"]);
    std::fs::write(place.path("file"), "kept").unwrap();
    let file = place.path("file").display().to_string();
    cluster.weir(&["cp", &file, "weir:/file"]).ok();
    let daemons = || cluster.weir(&["status", "--json"]).json()["daemons"].clone();
    assert!(daemons().as_array().unwrap().iter().all(|daemon| daemon["metrics"].is_null()));
    let said = cluster.weir(&["up", "--metrics", "127.0.0.1"]);
    for name in ["meta", "data-1", "data-2"] {
        assert!(
            said.err.contains(&format!("{name} is started anew, to serve metrics")),
            "{said:?}"
        );
    }
    said.ok();
    let on = daemons();
    for daemon in on.as_array().unwrap() {
        let address: std::net::SocketAddr = daemon["metrics"].as_str().unwrap().parse().unwrap();
        std::net::TcpStream::connect(address).unwrap();
    }
    assert!(cluster.weir(&["status"]).ok().contains("All is well"));
    assert_eq!(cluster.weir(&["cat", "weir:/file"]).ok(), "kept");
    // A second run restarts nothing.
    assert_eq!(cluster.weir(&["up", "--metrics", "127.0.0.1"]).err, "");
    let pids = |daemons: &serde_json::Value| -> Vec<String> {
        daemons.as_array().unwrap().iter().map(|daemon| daemon["pid"].to_string()).collect()
    };
    assert_eq!(pids(&daemons()), pids(&on));
    // What is added has them, too, and a server that does not run is not started by that alone.
    cluster.weir(&["server", "add"]).ok();
    assert!(daemons().as_array().unwrap().iter().all(|daemon| daemon["metrics"].is_string()));
}
