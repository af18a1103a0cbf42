//! Levels of protection of a cluster and of its mounts, with real daemons.

use crate::harness::{Cluster, Place, eventually, noise};
use crate::library::{client, config, credential};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context, CreateOptions, Transport};
use weir_types::{FileId, TargetId};
use weir_wire::Level;
use weir_wire::frame::{Header, VERSION, encode_head};
use weir_wire::message::Op;

/// A counter of a data server.
fn of_data(cluster: &Cluster<'_>, counter: &str) -> u64 {
    let status = cluster.weir(&["status", "--json", "--counters"]).json();
    let counters = &status["servers"]["data-1"]["counters"];
    counters[counter].as_u64().unwrap_or_else(|| panic!("no {counter} in {counters}"))
}

fn level_of(cluster: &Cluster<'_>) -> String {
    let status = cluster.weir(&["status", "--json"]).json();
    status["protection"].as_str().unwrap().to_owned()
}

/// Puts files into a mount and gets them back.
fn copies_both_ways(at: &Path) {
    for (n, len) in [1, 4096, 300_000, 5_000_000].into_iter().enumerate() {
        let (path, data) = (at.join(format!("file{n}")), noise(len, n as u64));
        fs::write(&path, &data).unwrap();
        assert!(fs::read(&path).unwrap() == data, "{len}");
    }
}

/// Changes a setting of a data server in its file.
fn set_data(cluster: &Cluster<'_>, key: &str, value: toml::Value) {
    let path = cluster.dir().join("data-1.toml");
    let mut settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    settings.insert(key.into(), value);
    fs::write(&path, settings.to_string()).unwrap();
}

/// Which direction a relay changes next, once: in a long piece, so amidst data.
const TO_SERVER: usize = 1;
const TO_CLIENT: usize = 2;
const NEITHER: usize = 0;

/// The address of a relay that changes one bit each time that it is told to.
fn flipper(address: &str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, flips) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let (address, told) = (address.to_owned(), flips.clone());
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let far = TcpStream::connect(&address).unwrap();
            let to_server = (near.try_clone(), far.try_clone(), TO_SERVER);
            for (from, to, way) in [to_server, (Ok(far), Ok(near), TO_CLIENT)] {
                let (mut from, mut to, told) = (from.unwrap(), to.unwrap(), told.clone());
                std::thread::spawn(move || {
                    let mut buffer = [0; 65_536];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        let take = || told.compare_exchange(way, NEITHER, Relaxed, Relaxed);
                        if n > 8192 && take().is_ok() {
                            buffer[n / 2] ^= 1;
                        }
                        if to.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    to.shutdown(std::net::Shutdown::Both).ok();
                    from.shutdown(std::net::Shutdown::Both).ok();
                });
            }
        }
    });
    (own, flips)
}

/// The address of a relay that records what both sides say.
fn recorder(address: &str) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, recorded) =
        (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<u8>>>::default());
    let (address, all) = (address.to_owned(), recorded.clone());
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let far = TcpStream::connect(&address).unwrap();
            let ends = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
            for (from, to) in ends {
                let (mut from, mut to, all) = (from.unwrap(), to.unwrap(), all.clone());
                std::thread::spawn(move || {
                    let mut buffer = [0; 65_536];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        all.lock().unwrap().extend_from_slice(&buffer[..n]);
                        if to.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    to.shutdown(std::net::Shutdown::Both).ok();
                });
            }
        }
    });
    (own, recorded)
}

/// Makes a file by way of a recorder; returns whether the recording has its name.
fn shows_names(cluster: &Cluster<'_>) -> bool {
    let text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let text: toml::Table = text.parse().unwrap();
    let (address, recorded) = recorder(text["metadata"].as_str().unwrap());
    let name = b"a-name-for-few";
    let by = Client::connect(ClientConfig { metadata: vec![address], ..config(cluster) }).unwrap();
    by.create(&Context::root(), FileId::ROOT, name, &CreateOptions::default()).unwrap();
    let recorded = recorded.lock().unwrap();
    assert!(recorded.len() > 1000);
    recorded.windows(name.len()).any(|bytes| bytes == name)
}

#[test]
fn a_private_cluster_serves_who_asks_for_less_at_its_level_and_refuses_who_cannot() {
    let place = Place::new();
    let cluster = place.up("private", &["--targets", "2", "--protection", "private"]);
    assert!(fs::read_to_string(cluster.dir().join("meta.toml")).unwrap().contains("protection"));
    assert_eq!(level_of(&cluster), "private");
    assert!(cluster.weir(&["status"]).ok().contains("protected as `private`"));
    copies_both_ways(&cluster.mount("m", "protection=args"));
    let own = client(&cluster, false);
    assert_eq!((own.config().protection, own.protection()), (Level::Args, Level::Private));
    assert_eq!(of_data(&cluster, "net.protected_args"), 0);
    assert!(of_data(&cluster, "net.protected_private") > 0);
    assert!(!shows_names(&cluster));

    // A program of the version before knows one level only.
    let mut hello = Vec::new();
    encode_head(&mut hello, Header::request(Op::Hello, weir_types::RequestId(0)), &(), &[], 0);
    hello[4..6].copy_from_slice(&(VERSION - 1).to_le_bytes());
    let data = cluster.weir(&["server", "list", "--json"]).json()[0]["address"].clone();
    let text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let text: toml::Table = text.parse().unwrap();
    for address in [text["metadata"].as_str().unwrap(), data.as_str().unwrap()] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(&hello).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains("install the same release"), "{answer}");
    }

    // A revoked key is refused as it is at any level.
    cluster.weir(&["key", "create", "guest", "-o", "guest.toml"]).ok();
    let guest = credential(&place.path("guest.toml"));
    let guest = ClientConfig { request_timeout_ms: 5_000, ..guest.without_cache() };
    let guest = Client::connect(guest).unwrap();
    let ctx = Context::root();
    let (file, _) = guest.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.write_at(&ctx, 0, &noise(100_000, 1)).unwrap();
    cluster.weir(&["key", "revoke", "guest"]).ok();
    assert!(file.read_at(&ctx, 0, &mut [0; 10]).is_err());
    assert!(file.write_at(&ctx, 0, &[0; 10]).is_err());
}

#[test]
fn a_mount_may_ask_for_more_than_its_cluster_requires() {
    let place = Place::new();
    let cluster = place.up("more", &["--targets", "1"]);
    assert!(shows_names(&cluster), "the recorder records");
    assert_eq!((of_data(&cluster, "net.protected_data"), level_of(&cluster)), (0, "args".into()));
    copies_both_ways(&cluster.mount("data", "protection=data"));
    assert!(of_data(&cluster, "net.protected_data") > 0);
    copies_both_ways(&cluster.mount("private", "protection=private"));
    assert!(of_data(&cluster, "net.protected_private") > 0);
    cluster.weir(&["mount", "x", "-o", "protection=most"]).fails(&["args, data or private"]);
    // A line in the credential does the same for every program.
    let path = cluster.dir().join("client.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "protection = \"private\"\n").unwrap();
    assert_eq!(level_of(&cluster), "private");
}

#[test]
fn the_level_of_a_cluster_is_raised_while_it_is_in_use() {
    let place = Place::new();
    let cluster = place.up("raised", &["--targets", "2"]);
    let own = client(&cluster, false);
    let ctx = Context::root();
    let (file, _) = own.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    let data = noise(300_000, 1);
    file.write_at(&ctx, 0, &data).unwrap();
    let (ends, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !ends.load(Relaxed) {
                let mut back = vec![0; data.len()];
                file.read_at(&ctx, 0, &mut back).unwrap();
                assert!(back == data);
                file.write_at(&ctx, 0, &data).unwrap();
                rounds.fetch_add(1, Relaxed);
            }
        });
        eventually("it is at work", || rounds.load(Relaxed) > 3);
        cluster.weir(&["up", "--protection", "private"]).ok();
        assert_eq!(level_of(&cluster), "private");
        eventually("nobody is left at a lower level", || {
            of_data(&cluster, "net.protected_args") + of_data(&cluster, "net.protected_data") == 0
        });
        let then = rounds.load(Relaxed);
        eventually("it goes on", || rounds.load(Relaxed) > then + 3);
        ends.store(true, Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(own.protection(), Level::Private);
    assert!(of_data(&cluster, "net.protected_private") > 0);
    // As it is already: nothing is started anew.
    let pid = cluster.pid("meta");
    cluster.weir(&["up", "--protection", "private"]).ok();
    assert_eq!(cluster.pid("meta"), pid);
}

#[test]
fn damage_on_the_way_is_repaired_at_every_level() {
    let place = Place::new();
    let cluster = place.up("flipped", &["--targets", "1"]);
    let path = cluster.dir().join("data-1.toml");
    let settings: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    let (address, flips) = flipper(settings["listen"].as_str().unwrap());
    set_data(&cluster, "advertise", address.clone().into());
    cluster.kill("data-1");
    cluster.weir(&["up"]).ok();
    eventually("clients are told of the relay", || {
        let map = client(&cluster, false).cluster_map().unwrap();
        map.servers.iter().any(|server| server.tcp == address)
    });
    let ctx = Context::root();
    for (n, level) in Level::ALL.into_iter().enumerate() {
        let config = config(&cluster).without_cache();
        let config = ClientConfig { protection: level, transport: Transport::Tcp, ..config };
        let client = Client::connect(config).unwrap();
        let (name, data) = (level.label().as_bytes(), noise(4_000_000, n as u64));
        let (file, _) = client.create(&ctx, FileId::ROOT, name, &CreateOptions::default()).unwrap();
        flips.store(TO_SERVER, Relaxed);
        file.write_at(&ctx, 0, &data).unwrap();
        assert_eq!(flips.load(Relaxed), NEITHER, "{level}: a write was changed");
        let mut back = vec![0; data.len()];
        flips.store(TO_CLIENT, Relaxed);
        assert_eq!(file.read_at(&ctx, 0, &mut back).unwrap(), data.len());
        assert_eq!(flips.load(Relaxed), NEITHER, "{level}: a read was changed");
        assert!(back == data, "{level}");
    }
}

#[test]
fn a_client_asks_data_servers_for_what_its_cluster_requires_also_if_they_have_not_heard_it() {
    let place = Place::new();
    let cluster = place.up("lax", &["--targets", "1", "--protection", "private"]);
    let own = Client::connect(config(&cluster)).unwrap();
    assert_eq!(own.config().protection, Level::Args);
    let status = || own.data_status(TargetId(1), 60_000).unwrap();
    status();
    // It asks no metadata server, so it requires nothing.
    cluster.kill("data-1");
    set_data(&cluster, "metadata", toml::Value::Array(Vec::new()));
    let config = cluster.dir().join("data-1.toml");
    let mut server = place.command(&["data", "--config", config.to_str().unwrap()]);
    let server = Killed(server.spawn().unwrap());
    let mut counters = Vec::new();
    eventually("it serves", || {
        let status = own.data_status(TargetId(1), 1_000);
        status.map(|status| counters = status.counters).is_ok()
    });
    drop(server);
    let of = |name: &str| counters.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!(of("net.protected_args"), 0);
    assert!(of("net.protected_private") > 0);
}

/// A process that ends with the test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn an_interrupted_change_of_the_level_is_completed_by_the_next_one() {
    let place = Place::new();
    let cluster = place.up("half", &["--targets", "1"]);
    // As far as the first one got: the file says so, and the server has not read it.
    let path = cluster.dir().join("meta.toml");
    let mut settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    settings.insert("protection".into(), "data".into());
    fs::write(&path, settings.to_string()).unwrap();
    assert_eq!(level_of(&cluster), "args");
    cluster.weir(&["up", "--protection", "data"]).ok();
    assert_eq!(level_of(&cluster), "data");
    let pid = cluster.pid("meta");
    cluster.weir(&["up", "--protection", "data"]).ok();
    assert_eq!(cluster.pid("meta"), pid);
}
