//! Bits that flip on the disks of a cluster of real processes: they are found,
//! called by their name, and never served.

use crate::harness::{self, Cluster, Place, noise, root};
use crate::library::{self, client};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_client::{Client, Context, CreateOptions, File};
use weir_types::{ErrorKind, FileId, LayoutSpec};
use weir_wire::Rights;

const BLOCK: u64 = 4096;
/// Where the data of an object begins in its file (docs/format-store.md).
const DATA_START: u64 = 32 * BLOCK;
/// Where the checksums of its first blocks are.
const SLOTS_START: u64 = 512;
const EIO: i32 = 5;

fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    file.sync_all().unwrap();
}

/// Striped over all targets from the first on, in units of 64 KiB.
fn put(client: &Client, name: &str, data: &[u8]) -> FileId {
    let ctx = Context::root();
    let layout = Some(LayoutSpec { base: Some(0), ..LayoutSpec::default() });
    let options = CreateOptions { layout, ..CreateOptions::default() };
    let (file, _) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options).unwrap();
    file.write_at(&ctx, 0, data).unwrap();
    file.sync(&ctx).unwrap();
    let id = file.id();
    file.close(&ctx).unwrap();
    id
}

fn open(client: &Client, file: FileId) -> File {
    client.open(&Context::root(), file, Rights::READ).unwrap().0
}

/// The file of an object, by target.
fn object_file(cluster: &Cluster<'_>, target: u32, file: FileId) -> PathBuf {
    let objects = cluster.dir().join(format!("targets/{target}/objects"));
    let prefix = format!("f{:x}.", file.0);
    let hashes = fs::read_dir(objects).unwrap().map(|hash| hash.unwrap().path());
    let mut files = hashes.flat_map(|hash| fs::read_dir(hash).unwrap().map(|f| f.unwrap().path()));
    files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix)).unwrap()
}

/// Runs `weir scrub --json`: its exit code and what it said.
fn scrub(cluster: &Cluster<'_>, more: &[&str]) -> (i32, Value) {
    let mut arguments = vec!["scrub", "--json"];
    arguments.extend(more);
    let said = cluster.weir(&arguments);
    let value = serde_json::from_str(&said.out)
        .unwrap_or_else(|e| panic!("{e}\nstdout: {}\nstderr: {}", said.out, said.err));
    (said.code.unwrap(), value)
}

/// What is found, by target, kind, path and bytes of the file.
fn findings(found: &Value) -> Vec<(u64, String, Value, Value)> {
    let list = found["findings"].as_array().unwrap();
    let mut list: Vec<_> = list
        .iter()
        .map(|f| {
            let damage = f["damage"].as_str().unwrap().to_owned();
            (f["target"].as_u64().unwrap(), damage, f["path"].clone(), f["bytes"].clone())
        })
        .collect();
    list.sort_by_key(|(target, damage, _, bytes)| (*target, damage.clone(), bytes.to_string()));
    list
}

#[test]
fn flipped_bits_of_objects_are_all_found_and_none_is_served() {
    let place = Place::new();
    let mount = place.path("mnt");
    let at = mount.to_str().unwrap();
    let mounted = root();
    let cluster = match mounted {
        true => place.up("rot", &["--targets", "2", "--mount", at]),
        false => place.up("rot", &["--targets", "2"]),
    };
    let client = client(&cluster, false);
    let data = noise(2 << 20, 1);
    let file = put(&client, "data", &data);
    let other = put(&client, "other", &noise(300_000, 2));
    let (code, found) = scrub(&cluster, &[]);
    assert_eq!((code, findings(&found)), (0, vec![]), "{found:#}");
    assert_eq!(found["targets"][0]["bytes"].as_u64().unwrap(), (1 << 20) + 3 * 65_536 - 27_680);
    assert!(found["metadata"]["records"].as_u64().unwrap() > 8);

    // Data of the first column, data of the second, a checksum of the first.
    flip(&object_file(&cluster, 1, file), DATA_START + 5 * BLOCK + 99);
    flip(&object_file(&cluster, 2, file), DATA_START + 100 * BLOCK);
    flip(&object_file(&cluster, 1, file), SLOTS_START + 4 * 9);
    flip(&object_file(&cluster, 1, other), 20);
    let superblock = cluster.dir().join("targets/2/superblock");
    flip(&superblock, 20);
    let rotten = [5 * BLOCK, 9 * BLOCK, 13 * 65_536 + 4 * BLOCK];
    let bytes = |start: u64| json!([[start, start + BLOCK - 1]]);
    let (code, found) = scrub(&cluster, &[]);
    let expected = vec![
        (1, "block".to_owned(), json!("/data"), bytes(rotten[0])),
        (1, "block".to_owned(), json!("/data"), bytes(rotten[1])),
        (1, "header".to_owned(), json!("/other"), json!([])),
        (2, "block".to_owned(), json!("/data"), bytes(rotten[2])),
        (2, "superblock".to_owned(), Value::Null, json!([])),
    ];
    assert_eq!((code, findings(&found)), (1, expected), "{found:#}");
    let said = cluster.weir(&["scrub", "1", "--limit", "64M"]).fails(&[]);
    assert_eq!(said, "", "it is all in the list");
    // 1.2 MB: so much takes more than two seconds, of which the last one is not waited for.
    let begin = Instant::now();
    cluster.weir(&["scrub", "1", "--limit", "500K"]).fails(&[]);
    assert!(begin.elapsed() >= Duration::from_millis(1200), "{:?}", begin.elapsed());
    let said = cluster.weir(&["scrub", "1"]);
    for word in ["weir:/data, bytes 20480-24575", "target 1 (data-1)", "weir:/other", "3 findings"]
    {
        assert!(said.out.contains(word), "no {word:?} in {}", said.out);
    }
    flip(&superblock, 20);

    // Block by block: what is rotten is refused, all else is as it was written.
    let open_file = open(&client, file);
    let ctx = Context::root();
    let mut buffer = vec![0; BLOCK as usize];
    for start in (0..2 << 20).step_by(BLOCK as usize) {
        let (at, len) = if start == rotten[1] { (start + 7, 10) } else { (start, 4096) };
        let read = open_file.read_at(&ctx, at, &mut buffer[..len]);
        if rotten.contains(&start) {
            let error = read.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
            let target = if start == rotten[2] { 2 } else { 1 };
            let range = format!("bytes {start}-{}", start + BLOCK - 1);
            for word in [&format!("file {file}"), &range, &format!("target {target}")] {
                assert!(error.message.contains(word.as_str()), "no {word:?} in {error}");
            }
        } else {
            assert_eq!(read.unwrap(), 4096);
            assert!(buffer == data[start as usize..][..4096], "block at {start}");
        }
    }
    cluster.weir(&["cat", "weir:/data"]).fails(&[
        "weir:/data",
        "bytes 20480-24575",
        "target 1",
        "checksum",
    ]);
    if mounted {
        let error = fs::read(mount.join("data")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
        let logs = fs::read_dir(cluster.dir().join("log")).unwrap();
        let log: String = logs
            .map(|log| log.unwrap().path())
            .filter(|path| path.file_name().unwrap().to_str().unwrap().contains("mount"))
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        for word in [format!("file {file}, bytes 20480-24575"), "target 1".into()] {
            assert!(log.contains(&word), "no {word:?} in {log}");
        }
    }

    // A header counts when the object is opened again.
    cluster.weir(&["down"]).ok();
    cluster.weir(&["up"]).ok();
    let error = open(&client, other).read_at(&ctx, 0, &mut buffer).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    for word in ["within bytes 0-4095", "target 1", "header"] {
        assert!(error.message.contains(word), "no {word:?} in {error}");
    }
    let (_, found) = scrub(&cluster, &["1"]);
    assert_eq!(findings(&found).len(), 3, "{found:#}");
}

#[test]
fn a_damaged_superblock_keeps_a_target_out_of_service() {
    let place = Place::new();
    let cluster = place.up("super", &["--targets", "1"]);
    cluster.weir(&["down"]).ok();
    flip(&cluster.dir().join("targets/1/superblock"), 30);
    cluster.weir(&["up"]).fails(&["targets/1"]);
    flip(&cluster.dir().join("targets/1/superblock"), 30);
    cluster.weir(&["up"]).ok();
}

const FILES: usize = 300;

/// Many names, so that the tree has pages enough.
fn make_names(client: &Client) {
    let ctx = Context::root();
    let dir = client.mkdir(&ctx, FileId::ROOT, b"dir", 0o755).unwrap().file;
    for n in 0..FILES {
        let name = format!("a-file-with-a-rather-long-name-{n:04}");
        let mode = 0o600 + n as u16 % 64;
        let options = CreateOptions { mode, ..CreateOptions::default() };
        let (file, _) = client.create(&ctx, dir, name.as_bytes(), &options).unwrap();
        file.close(&ctx).unwrap();
    }
    client.sync_metadata(&ctx).unwrap();
}

/// Every name with its mode, as `make_names` made them, or an error.
fn check_names(client: &Client) -> Result<(), weir_types::Error> {
    let ctx = Context::root();
    let dir = client.resolve(&ctx, b"/dir", true)?.file;
    let (mut seen, mut cookie) = (0, 0);
    loop {
        let page = client.readdir(&ctx, dir, (cookie, 0), 1000, true)?;
        for entry in &page.entries {
            cookie = entry.cookie;
            if &*entry.name == b"." || &*entry.name == b".." {
                continue;
            }
            let name = String::from_utf8(entry.name.0.clone()).unwrap();
            assert_eq!(name, format!("a-file-with-a-rather-long-name-{seen:04}"));
            let mode = 0o600 + seen as u16 % 64;
            let attr = client.lookup(&ctx, dir, &entry.name)?;
            assert_eq!((attr.mode, entry.attr.as_ref().map(|a| a.mode)), (mode, Some(mode)));
            seen += 1;
        }
        if page.end {
            assert_eq!(seen, FILES);
            return Ok(());
        }
    }
}

/// Offsets of some of the blocks that hold anything: the first few, and others
/// all over the file.
fn used_blocks(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).unwrap();
    let blocks = bytes.chunks(BLOCK as usize).enumerate();
    let used = blocks.filter(|(_, block)| block.iter().any(|b| *b != 0));
    let all: Vec<u64> = used.map(|(n, _)| n as u64 * BLOCK).collect();
    let step = (all.len() / 10).max(1);
    all.iter().take(4).chain(all.iter().skip(4).step_by(step)).copied().collect()
}

fn metadata_findings(cluster: &Cluster<'_>) -> Vec<String> {
    let (code, found) = scrub(cluster, &[]);
    let list = found["metadata"]["findings"].as_array().unwrap_or_else(|| panic!("{found:#}"));
    assert_eq!(code, i32::from(!list.is_empty()), "{found:#}");
    list.iter().map(|what| what.as_str().unwrap().to_owned()).collect()
}

#[test]
fn scrub_finds_flipped_bits_of_the_metadata_that_are_in_memory_too() {
    let place = Place::new();
    let cluster = place.up("meta", &["--targets", "1"]);
    let client = client(&cluster, true);
    make_names(&client);
    // All of it into the tree.
    cluster.weir(&["down"]).ok();
    cluster.weir(&["up"]).ok();
    check_names(&client).unwrap();
    assert_eq!(metadata_findings(&cluster), [""; 0]);
    let tree = cluster.dir().join("meta/tree.redb");
    let blocks = used_blocks(&tree);
    assert!(blocks.len() > 8, "{blocks:?}");
    for (n, block) in blocks.into_iter().enumerate() {
        let at = block + 50 + 211 * (n as u64 % 16);
        flip(&tree, at);
        let found = metadata_findings(&cluster);
        assert_eq!(found.len(), 1, "byte {at}: {found:?}");
        assert!(found[0].contains("tree.redb"), "{found:?}");
        flip(&tree, at);
    }
    assert_eq!(metadata_findings(&cluster), [""; 0]);

    // The log of the last second: the tree may take it in at any moment.
    let found = (0..50).any(|n| {
        let name = format!("new-{n}");
        client.mkdir(&Context::root(), FileId::ROOT, name.as_bytes(), 0o755).unwrap();
        let Some(log) = log_with_records(&cluster) else { return false };
        flip(&log, 72 + 45);
        metadata_findings(&cluster).iter().any(|what| what.contains("log.") && what.contains("72"))
    });
    assert!(found, "no damage of the log was found");
    check_names(&client).unwrap();
}

fn log_with_records(cluster: &Cluster<'_>) -> Option<PathBuf> {
    let files = fs::read_dir(cluster.dir().join("meta")).unwrap().map(|f| f.unwrap().path());
    files.into_iter().find(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("log.") && fs::metadata(path).is_ok_and(|meta| meta.len() > 200)
    })
}

/// Makes `to` what `from` is.
fn copy_dir(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let mut cp = std::process::Command::new("cp");
    cp.arg("-a").arg(from).arg(to);
    harness::said(cp).ok();
}

#[test]
fn rotten_metadata_is_an_error_and_never_another_answer() {
    let place = Place::new();
    let cluster = place.up("meta", &["--targets", "1"]);
    let patient = client(&cluster, true);
    make_names(&patient);
    patient.shutdown();
    cluster.weir(&["down"]).ok();
    let tree = cluster.dir().join("meta/tree.redb");
    let mut noticed = 0;
    // A server that runs writes, also into the block that was flipped.
    let (dir, whole) = (cluster.dir().join("meta"), place.path("whole"));
    copy_dir(&dir, &whole);
    for block in used_blocks(&tree) {
        copy_dir(&whole, &dir);
        flip(&tree, block + 1234);
        let said = cluster.weir(&["up"]);
        if said.code == Some(0) {
            let config =
                weir_client::ClientConfig { request_timeout_ms: 2000, ..library::config(&cluster) };
            let read = Client::connect(config).and_then(|client| check_names(&client));
            noticed += usize::from(read.is_err());
            cluster.weir(&["down", "--force"]).ok();
        } else {
            assert!(said.err.contains("tree.redb"), "{}", said.err);
            noticed += 1;
        }
    }
    copy_dir(&whole, &dir);
    // Of the two copies of the header one may be bad, and some pages are spare.
    assert!(noticed >= 3, "{noticed}");
    cluster.weir(&["up"]).ok();
    let patient = client(&cluster, true);
    check_names(&patient).unwrap();

    // The log after a kill: what was acknowledged is there, or an error is.
    let ctx = Context::root();
    for n in 0..50 {
        patient.mkdir(&ctx, FileId::ROOT, format!("last-{n}").as_bytes(), 0o755).unwrap();
    }
    cluster.kill("meta");
    if let Some(log) = log_with_records(&cluster) {
        flip(&log, 72 + 45);
        cluster.weir(&["up"]).fails(&["log."]);
        flip(&log, 72 + 45);
    }
    cluster.weir(&["up"]).ok();
    assert!(patient.resolve(&ctx, b"/last-49", true).is_ok());
}
