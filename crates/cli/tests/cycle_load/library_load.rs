//! Random operations of one client on a directory of its own, and on a model
//! of it in memory: after each the two must agree, and none may fail, however
//! often servers die meanwhile. They are back well within the client's
//! patience, so a program must not notice.

use crate::harness::{Cluster, Said};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use weir_client::{Client, ClientConfig, Context, CreateOptions, File};
use weir_conformance::{Random, layouts};
use weir_types::checksum::crc32c;
use weir_types::codec::Bytes;
use weir_types::{ClientId, FileId};
use weir_wire::meta::RenameRequest;
use weir_wire::{Key, Rights};

const MAX_FILES: usize = 24;
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_CALL_BYTES: u64 = 150_000;
/// Operations between two listings of the whole directory.
const LIST_EVERY: u64 = 50;

/// A running load, as the test sees it.
pub struct LibraryLoad {
    child: Child,
    base: PathBuf,
}

impl LibraryLoad {
    /// Starts one; `base` is a path for its files on the local disk.
    pub fn start(cluster: &Cluster<'_>, base: PathBuf, seed: u64, cached: bool) -> Self {
        std::fs::write(&base, format!("{seed} {}", u8::from(cached))).unwrap();
        let variables =
            [("WEIR_LOAD_LIBRARY", base.as_path()), ("WEIR_LOAD_CLUSTER", &cluster.dir())];
        let child = super::start(&variables, &base.with_extension("log"));
        Self { child, base }
    }

    /// Operations that have been acknowledged.
    pub fn done(&self) -> u64 {
        let text = std::fs::read_to_string(self.base.with_extension("done"));
        text.ok().and_then(|t| t.parse().ok()).unwrap_or(0)
    }

    /// What it complained of, if it has ended.
    pub fn failure(&mut self) -> Option<String> {
        self.child.try_wait().unwrap()?;
        Some(std::fs::read_to_string(self.base.with_extension("log")).unwrap_or_default())
    }

    /// Lets it verify everything and end. What its directory holds then: name,
    /// length and checksum of each file.
    pub fn finish(mut self) -> Vec<(String, u64, u32)> {
        std::fs::write(self.base.with_extension("stop"), "").unwrap();
        let status = self.child.wait().unwrap();
        let log = std::fs::read_to_string(self.base.with_extension("log")).unwrap_or_default();
        assert!(status.success(), "a load failed:\n{log}");
        let manifest = std::fs::read_to_string(self.base.with_extension("manifest")).unwrap();
        let entry = |line: &str| {
            let mut words = line.split(' ');
            let mut next = || words.next().unwrap();
            (next().to_owned(), next().parse().unwrap(), next().parse().unwrap())
        };
        manifest.lines().map(entry).collect()
    }
}

impl Drop for LibraryLoad {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compares what `weir cat` shows with a manifest.
pub fn verify(cluster: &Cluster<'_>, directory: &str, manifest: &[(String, u64, u32)]) {
    let mut names: Vec<String> =
        cluster.weir(&["ls", directory]).ok().lines().map(str::to_owned).collect();
    names.sort();
    let wanted: Vec<String> = manifest.iter().map(|(name, ..)| name.clone()).collect();
    assert_eq!(names, wanted, "the names in {directory}");
    for (name, len, sum) in manifest {
        let output = cluster.command(&["cat", &format!("{directory}/{name}")]).output().unwrap();
        let Said { code, err, .. } = Said {
            code: output.status.code(),
            out: String::new(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        assert_eq!(code, Some(0), "{directory}/{name}: {err}");
        assert_eq!(output.stdout.len() as u64, *len, "{directory}/{name}: length");
        assert_eq!(crc32c(&output.stdout), *sum, "{directory}/{name}: contents");
    }
}

pub fn run_if_asked() -> bool {
    let Some(base) = std::env::var_os("WEIR_LOAD_LIBRARY").map(PathBuf::from) else {
        return false;
    };
    let cluster = PathBuf::from(std::env::var_os("WEIR_LOAD_CLUSTER").unwrap());
    let text = std::fs::read_to_string(&base).unwrap();
    let (seed, cached) = text.split_once(' ').unwrap();
    let mut config = credential(&cluster.join("client.toml"));
    if cached == "0" {
        config = config.without_cache();
    }
    let name = base.file_name().unwrap().to_str().unwrap().to_owned();
    let mut load = Load::new(Client::connect(config).unwrap(), &name, seed.parse().unwrap());
    let stop = base.with_extension("stop");
    while !stop.exists() {
        load.step();
        std::fs::write(base.with_extension("done"), load.steps.to_string()).unwrap();
    }
    std::fs::write(base.with_extension("manifest"), load.verify_everything()).unwrap();
    true
}

fn credential(file: &Path) -> ClientConfig {
    let file: toml::Table = std::fs::read_to_string(file).unwrap().parse().unwrap();
    let id = ClientId(file["client"].as_integer().unwrap() as u64);
    let key = Key::from_hex(file["key"].as_str().unwrap()).unwrap();
    let addresses = file["metadata"].as_array().unwrap();
    let metadata = addresses.iter().map(|a| a.as_str().unwrap().to_string()).collect();
    ClientConfig { metadata, ..ClientConfig::new("", id, key) }
}

/// A file: what is in it, and the handle if the load keeps it open.
struct Known {
    id: FileId,
    bytes: Vec<u8>,
    open: Option<File>,
}

struct Load {
    client: Client,
    ctx: Context,
    dir: FileId,
    random: Random,
    files: BTreeMap<String, Known>,
    made: u64,
    steps: u64,
}

impl Load {
    fn new(client: Client, name: &str, seed: u64) -> Self {
        let ctx = Context::root();
        let dir = client.mkdir(&ctx, FileId::ROOT, name.as_bytes(), 0o755).unwrap().file;
        let random = Random::new(seed);
        Self { client, ctx, dir, random, files: BTreeMap::new(), made: 0, steps: 0 }
    }

    /// One operation; panics if it fails or shows something else than the model.
    fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(LIST_EVERY) {
            return self.list();
        }
        let choice = self.random.below(100);
        if self.files.is_empty() || (choice < 12 && self.files.len() < MAX_FILES) {
            return self.create();
        }
        let name = self.pick();
        match choice {
            0..50 => self.write(&name),
            50..70 => self.read(&name),
            70..76 => self.truncate(&name),
            76..84 => self.sync(&name),
            84..89 => self.close(&name),
            89..95 => self.rename(&name),
            _ => self.unlink(&name),
        }
    }

    fn pick(&mut self) -> String {
        let at = self.random.below(self.files.len() as u64) as usize;
        self.files.keys().nth(at).unwrap().clone()
    }

    fn create(&mut self) {
        self.made += 1;
        let name = format!("f{}", self.made);
        let kinds = layouts();
        let (_, layout) = kinds[self.random.below(kinds.len() as u64) as usize].clone();
        let options =
            CreateOptions { layout: Some(layout), exclusive: true, ..CreateOptions::default() };
        let made = self.client.create(&self.ctx, self.dir, name.as_bytes(), &options);
        let (file, attr) = made.unwrap_or_else(|e| panic!("create {name}: {e}"));
        let known = Known { id: attr.file, bytes: Vec::new(), open: Some(file) };
        self.files.insert(name, known);
    }

    /// The file, opened if it is not.
    fn opened(&mut self, name: &str) -> (&mut Vec<u8>, &File) {
        let Known { id, bytes, open } = self.files.get_mut(name).unwrap();
        let (client, ctx) = (&self.client, &self.ctx);
        let file = open.get_or_insert_with(|| {
            let opened = client.open(ctx, *id, Rights::READ_WRITE);
            let (file, attr) = opened.unwrap_or_else(|e| panic!("open {name}: {e}"));
            assert_eq!(attr.size, bytes.len() as u64, "size of {name} when opened");
            file
        });
        (bytes, file)
    }

    fn write(&mut self, name: &str) {
        let len = match self.random.below(3) {
            0 => self.random.below(200) + 1,
            1 => self.random.below(9_000) + 1,
            _ => self.random.below(MAX_CALL_BYTES) + 1,
        };
        let size = self.files[name].bytes.len() as u64;
        let offset = match self.random.below(3) {
            0 => size,
            1 => self.random.below(size + 1),
            _ => 4096 * self.random.below(MAX_FILE_BYTES / 4096),
        };
        let offset = offset.min(MAX_FILE_BYTES - len);
        let data = self.random.bytes(len as usize);
        let ctx = self.ctx.clone();
        let (bytes, file) = self.opened(name);
        file.write_at(&ctx, offset, &data)
            .unwrap_or_else(|e| panic!("write {len} bytes at {offset} of {name}: {e}"));
        let (start, end) = (offset as usize, (offset + len) as usize);
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(&data);
    }

    fn read(&mut self, name: &str) {
        let size = self.files[name].bytes.len() as u64;
        let offset = self.random.below(size + 1);
        let len = self.random.below(MAX_CALL_BYTES) as usize;
        let ctx = self.ctx.clone();
        let (bytes, file) = self.opened(name);
        let mut read = vec![0xee; len];
        let got = file
            .read_at(&ctx, offset, &mut read)
            .unwrap_or_else(|e| panic!("read {len} bytes at {offset} of {name}: {e}"));
        let rest = &bytes[offset as usize..];
        assert_eq!(got, rest.len().min(len), "bytes read at {offset} of {name}");
        let wrong = read[..got].iter().zip(rest).position(|(r, w)| r != w);
        assert_eq!(wrong, None, "wrong byte, counted from {offset}, of {name}");
    }

    fn truncate(&mut self, name: &str) {
        let size = self.files[name].bytes.len() as u64;
        let to = self.random.below((size + 5000).min(MAX_FILE_BYTES));
        let ctx = self.ctx.clone();
        let (bytes, file) = self.opened(name);
        file.truncate(&ctx, to).unwrap_or_else(|e| panic!("truncate {name} to {to}: {e}"));
        bytes.resize(to as usize, 0);
    }

    fn sync(&mut self, name: &str) {
        let ctx = self.ctx.clone();
        let (_, file) = self.opened(name);
        file.sync(&ctx).unwrap_or_else(|e| panic!("sync {name}: {e}"));
    }

    fn close(&mut self, name: &str) {
        let known = self.files.get_mut(name).unwrap();
        if let Some(file) = known.open.take() {
            file.close(&self.ctx).unwrap_or_else(|e| panic!("close {name}: {e}"));
        }
        let attr = self.client.lookup(&self.ctx, self.dir, name.as_bytes());
        let attr = attr.unwrap_or_else(|e| panic!("lookup {name}: {e}"));
        assert_eq!((attr.file, attr.size), (known.id, known.bytes.len() as u64), "{name}, closed");
    }

    fn rename(&mut self, name: &str) {
        self.made += 1;
        // Over another file, sometimes.
        let to = if self.random.below(3) == 0 { self.pick() } else { format!("f{}", self.made) };
        let request = RenameRequest {
            parent: self.dir,
            name: Bytes(name.as_bytes().to_vec()),
            new_parent: self.dir,
            new_name: Bytes(to.as_bytes().to_vec()),
            no_replace: false,
            exchange: false,
            whiteout: false,
            hold: false,
        };
        let renamed = self.client.rename(&self.ctx, &request);
        renamed.unwrap_or_else(|e| panic!("rename {name} to {to}: {e}"));
        let known = self.files.remove(name).unwrap();
        // The file that had the name goes with its handle.
        self.files.insert(to, known);
    }

    fn unlink(&mut self, name: &str) {
        let removed = self.client.unlink(&self.ctx, self.dir, name.as_bytes());
        removed.unwrap_or_else(|e| panic!("unlink {name}: {e}"));
        self.files.remove(name);
    }

    fn list(&mut self) {
        let mut names = Vec::new();
        let (mut cookie, mut last) = (0, 0);
        loop {
            let page = self.client.readdir(&self.ctx, self.dir, (cookie, last), 10, false);
            let page = page.unwrap_or_else(|e| panic!("list: {e}"));
            last = page.last;
            for entry in &page.entries {
                names.push(String::from_utf8(entry.name.0.clone()).unwrap());
                cookie = entry.cookie;
            }
            if page.end {
                break;
            }
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        assert_eq!(names, self.files.keys().cloned().collect::<Vec<_>>(), "the names");
    }

    /// Closes and reads everything; what there is, line by line.
    fn verify_everything(&mut self) -> String {
        self.list();
        let mut manifest = String::new();
        let mut names: Vec<String> = self.files.keys().cloned().collect();
        names.sort();
        for name in names {
            self.close(&name);
            let ctx = self.ctx.clone();
            let (bytes, file) = self.opened(&name);
            let mut read = vec![0; bytes.len() + 1];
            let got = file.read_at(&ctx, 0, &mut read).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(read[..got] == bytes[..], "{name} is not what was written");
            manifest += &format!("{name} {got} {}\n", crc32c(bytes));
        }
        manifest
    }
}
