//! Many changes of a namespace, with quotas that come and go and are still being counted: after
//! each of them every quota says exactly what a plain model of the tree has. `WEIR_SEED=n` runs
//! one seed.

use crate::harness::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_metaserver::audit::{Kind, SnapshotReader};
use weir_metaserver::schema::{self, ALL_COUNTED, Inode, QuotaRecord, key};
use weir_metastore::{Engine, ModelEngine};
use weir_types::{Caller, Error, ErrorKind, FileId, FileKind};
use weir_wire::Rights;
use weir_wire::meta::*;
use weir_wire::quota::*;

const STEPS: usize = 400;
const KIB: u64 = 1024;
/// So many files are there before: more than are counted in one step.
const BEFORE: usize = 1100;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// A file or directory.
#[derive(Clone, Debug)]
struct Node {
    kind: FileKind,
    owner: (u32, u32),
    size: u64,
    names: BTreeSet<(FileId, String)>,
    /// Of one without a name: the directories with quotas that it counts in.
    counted_in: BTreeSet<FileId>,
    opens: u32,
}

/// A tree, and no more.
#[derive(Clone, Debug, Default)]
struct Model {
    nodes: BTreeMap<FileId, Node>,
    quotas: BTreeMap<QuotaSubject, QuotaLimits>,
}

impl Model {
    fn find(&self, dir: FileId, name: &str) -> Option<FileId> {
        let has = |node: &&Node| node.names.contains(&(dir, name.to_owned()));
        self.nodes.iter().find(|(_, node)| has(node)).map(|(file, _)| *file)
    }

    fn directories(&self) -> Vec<FileId> {
        let all = self.nodes.iter().filter(|(_, node)| node.kind == FileKind::Directory);
        all.map(|(dir, _)| *dir).collect()
    }

    /// The directories with quotas from here on up.
    fn above(&self, dir: FileId) -> BTreeSet<FileId> {
        let (mut found, mut here) = (BTreeSet::new(), Some(dir));
        while let Some(dir) = here {
            if self.quotas.contains_key(&QuotaSubject::Directory(dir)) {
                found.insert(dir);
            }
            let node = self.nodes.get(&dir);
            here = node.and_then(|node| node.names.first()).map(|(parent, _)| *parent);
        }
        found
    }

    /// What a file counts for; `parent`: which of several names counts.
    fn subjects(&self, file: FileId, parent: Option<FileId>) -> Vec<QuotaSubject> {
        let node = &self.nodes[&file];
        let above = match (node.kind, node.names.first()) {
            (FileKind::Directory, _) => self.above(file),
            (_, Some((dir, _))) => self.above(parent.unwrap_or(*dir)),
            (_, None) => node.counted_in.clone(),
        };
        let owners = [QuotaSubject::User(node.owner.0), QuotaSubject::Group(node.owner.1)];
        let all = owners.into_iter().chain(above.into_iter().map(QuotaSubject::Directory));
        all.filter(|subject| self.quotas.contains_key(subject)).collect()
    }

    fn unlink(&mut self, dir: FileId, name: &str) {
        let Some(file) = self.find(dir, name) else { return };
        let counted_in = self.above(dir);
        let node = self.nodes.get_mut(&file).unwrap();
        node.names.remove(&(dir, name.to_owned()));
        if node.names.is_empty() {
            node.counted_in = counted_in;
            if node.opens == 0 || node.kind == FileKind::Directory {
                self.nodes.remove(&file);
                self.quotas.remove(&QuotaSubject::Directory(file));
            }
        }
    }
}

struct World {
    c: Cluster<ModelEngine>,
    me: Client,
    model: Model,
    random: Random,
    done: BTreeMap<&'static str, u32>,
}

fn bytes(name: &str) -> weir_types::codec::Bytes {
    name.as_bytes().into()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut c = Cluster::new(1);
        let mut me = c.client(root());
        let mut model = Model::default();
        let dir = |names: BTreeSet<(FileId, String)>| Node {
            kind: FileKind::Directory,
            owner: (0, 0),
            size: 0,
            names,
            counted_in: BTreeSet::new(),
            opens: 0,
        };
        model.nodes.insert(FileId::ROOT, dir(BTreeSet::new()));
        let mut random = Random(seed);
        let mut tops = Vec::new();
        for name in ["p", "q", "r"] {
            let request =
                MkdirRequest { parent: FileId::ROOT, name: bytes(name), mode: 0o777, umask: 0 };
            let top = c.make(&mut me, &request).unwrap().file;
            model.nodes.insert(top, dir(BTreeSet::from([(FileId::ROOT, name.into())])));
            tops.push(top);
        }
        let mut world = Self { c, me, model, random, done: BTreeMap::new() };
        for i in 0..BEFORE {
            world.me.caller = world.caller();
            let (dir, name) = (tops[i % 3], format!("before{i}"));
            let open = world.c.make(&mut world.me, &create_request(dir, &name)).unwrap();
            world.c.close(&mut world.me, open.attr.file);
            let node = Node {
                kind: FileKind::File,
                owner: (world.me.caller.uid, world.me.caller.gid),
                names: BTreeSet::from([(dir, name)]),
                ..world.model.nodes[&tops[0]].clone()
            };
            world.model.nodes.insert(open.attr.file, node);
        }
        random = Random(seed ^ 0x5555);
        world.random = random;
        world
    }

    fn caller(&mut self) -> Caller {
        self.random.pick(&[root(), user(1000, 50, &[51]), user(1001, 51, &[50])])
    }

    fn dir(&mut self) -> FileId {
        let dirs = self.model.directories();
        self.random.pick(&dirs)
    }

    fn name(&mut self) -> String {
        match self.random.below(5) {
            0 => format!("before{}", self.random.below(BEFORE)),
            _ => self.random.pick(&["a", "b", "c", "d", "e"]).to_owned(),
        }
    }

    /// A name that is there, mostly.
    fn place(&mut self) -> (FileId, String) {
        if self.random.below(4) == 0 {
            return (self.dir(), self.name());
        }
        let all = self.model.nodes.values().flat_map(|node| node.names.iter().cloned());
        // The files of before are many.
        let all: Vec<_> = all.filter(|(_, name)| !name.starts_with("before")).collect();
        self.random.pick(&all)
    }

    fn file(&mut self) -> FileId {
        let files: Vec<FileId> = self
            .model
            .nodes
            .iter()
            .filter(|(_, node)| node.kind == FileKind::File)
            .map(|(file, _)| *file)
            .collect();
        // Those that were made last, mostly.
        let from = if self.random.below(3) == 0 { 0 } else { files.len().saturating_sub(12) };
        self.random.pick(&files[from..])
    }

    fn count<T>(&mut self, what: &'static str, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => {
                *self.done.entry(what).or_default() += 1;
                Some(value)
            }
            Err(error) => {
                use ErrorKind::*;
                let expected = [
                    QuotaExceeded,
                    CrossDevice,
                    Exists,
                    NotFound,
                    NotEmpty,
                    InvalidArgument,
                    IsDirectory,
                    NotDirectory,
                    Stale,
                    AccessDenied,
                    NotPermitted,
                    BadHandle,
                ];
                assert!(expected.contains(&error.kind), "{what}: {error:?}");
                if error.kind == QuotaExceeded {
                    assert_ne!(self.me.caller.uid, 0, "the superuser is refused nothing");
                    *self.done.entry("refused").or_default() += 1;
                }
                if error.kind == CrossDevice {
                    *self.done.entry("crossing").or_default() += 1;
                }
                None
            }
        }
    }

    fn step(&mut self) {
        self.me.caller = self.caller();
        match self.random.below(16) {
            0 | 1 => self.create(),
            2 => self.mkdir(),
            3 => self.unlink(),
            4 => self.rmdir(),
            5 | 6 => self.rename(),
            7 => self.link(),
            8 => self.chown(),
            9 => self.truncate(),
            10 | 11 => self.write(),
            12 => self.open_or_close(),
            13 => self.set_quota(),
            14 => self.work(),
            _ => match self.random.below(12) {
                0 => self.restart(),
                _ => self.work(),
            },
        }
    }

    fn made(&mut self, file: FileId, kind: FileKind, name: Option<(FileId, String)>, opens: u32) {
        let owner = (self.me.caller.uid, self.me.caller.gid);
        let names = name.into_iter().collect();
        let counted_in = BTreeSet::new();
        let node = Node { kind, owner, size: 0, names, counted_in, opens };
        self.model.nodes.insert(file, node);
    }

    fn create(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let unnamed = self.random.below(4) == 0;
        let request = CreateRequest {
            name: if unnamed { bytes("") } else { bytes(&name) },
            mode: 0o666,
            ..create_request(dir, &name)
        };
        let made = self.c.make(&mut self.me, &request);
        if let Some(open) = self.count("create", made) {
            let at = (!unnamed).then_some((dir, name));
            self.made(open.attr.file, FileKind::File, at, 1);
            if unnamed {
                let above = self.model.above(dir);
                self.model.nodes.get_mut(&open.attr.file).unwrap().counted_in = above;
            }
        }
    }

    fn mkdir(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        if self.model.directories().len() > 14 {
            return;
        }
        let request = MkdirRequest { parent: dir, name: bytes(&name), mode: 0o777, umask: 0 };
        let made = self.c.make(&mut self.me, &request);
        if let Some(attr) = self.count("mkdir", made) {
            self.made(attr.file, FileKind::Directory, Some((dir, name)), 0);
        }
    }

    fn unlink(&mut self) {
        let (dir, name) = self.place();
        let done = self.c.unlink(&mut self.me, dir, &name);
        if self.count("unlink", done).is_some() {
            self.model.unlink(dir, &name);
        }
    }

    fn rmdir(&mut self) {
        let (dir, name) = self.place();
        let request = RmdirRequest { parent: dir, name: bytes(&name) };
        let done = self.c.make(&mut self.me, &request);
        if self.count("rmdir", done).is_some() {
            self.model.unlink(dir, &name);
        }
    }

    fn rename(&mut self) {
        let (from, to) = (self.place(), (self.dir(), self.name()));
        let exchange = self.random.below(4) == 0;
        let to = if exchange { self.place() } else { to };
        let request =
            RenameRequest { exchange, ..rename_request((from.0, &from.1), (to.0, &to.1)) };
        let done = self.c.make(&mut self.me, &request);
        if self.count("rename", done).is_none() {
            return;
        }
        let source = self.model.find(from.0, &from.1).unwrap();
        let target = self.model.find(to.0, &to.1);
        if Some(source) == target {
            // Two names of one file.
            return;
        }
        let nodes = &mut self.model.nodes;
        match target {
            Some(target) if exchange => {
                let target = nodes.get_mut(&target).unwrap();
                target.names.remove(&to);
                target.names.insert(from.clone());
            }
            Some(_) => self.model.unlink(to.0, &to.1),
            None => {}
        }
        let source = self.model.nodes.get_mut(&source).unwrap();
        source.names.remove(&from);
        source.names.insert(to);
    }

    fn link(&mut self) {
        let (file, to) = (self.file(), (self.dir(), self.name()));
        let request = LinkRequest { file, parent: to.0, name: bytes(&to.1) };
        let done = self.c.make(&mut self.me, &request);
        if self.count("link", done).is_some() {
            let node = self.model.nodes.get_mut(&file).unwrap();
            node.names.insert(to);
            node.counted_in.clear();
        }
    }

    fn chown(&mut self) {
        let file = if self.random.below(4) == 0 { self.dir() } else { self.file() };
        let uid = self.random.pick(&[None, None, Some(1000), Some(1001), Some(0)]);
        let gid = self.random.pick(&[None, Some(50), Some(51)]);
        let request = SetAttrRequest { uid, gid, ..set_nothing(file) };
        let done = self.c.make(&mut self.me, &request);
        if self.count("chown", done).is_some() {
            let owner = &mut self.model.nodes.get_mut(&file).unwrap().owner;
            *owner = (uid.unwrap_or(owner.0), gid.unwrap_or(owner.1));
        }
    }

    fn truncate(&mut self) {
        let (file, size) = (self.file(), self.random.below(40) as u64 * KIB);
        let done = self.c.make(&mut self.me, &set_size(file, size));
        if self.count("truncate", done).is_some() {
            self.model.nodes.get_mut(&file).unwrap().size = size;
        }
    }

    fn write(&mut self) {
        let (file, end) = (self.file(), self.random.below(60) as u64 * KIB);
        if self.model.nodes[&file].opens == 0 {
            return;
        }
        let asked = self.c.ask(&self.me, &RoomRequest { file, end });
        let Some(room) = self.count("room", asked) else { return };
        assert!(room.up_to >= end);
        let generation = self.c.getattr(&self.me, file).unwrap().generation;
        let commit = CommitSizeRequest {
            file,
            size: end,
            generation,
            mtime: Some(SetTime::Now),
            written: Vec::new(),
            ranges: Vec::new(),
            sparse: false,
            durable: false,
        };
        let done = self.c.make(&mut self.me, &commit);
        if self.count("write", done).is_some() {
            let size = &mut self.model.nodes.get_mut(&file).unwrap().size;
            *size = end.max(*size);
        }
    }

    fn open_or_close(&mut self) {
        let file = self.file();
        if self.model.nodes[&file].opens == 0 {
            let request = OpenRequest { file, rights: Rights::READ_WRITE };
            let done = self.c.make(&mut self.me, &request);
            if self.count("open", done).is_some() {
                self.model.nodes.get_mut(&file).unwrap().opens += 1;
            }
            return;
        }
        self.c.close(&mut self.me, file);
        let node = self.model.nodes.get_mut(&file).unwrap();
        node.opens -= 1;
        if node.opens == 0 && node.names.is_empty() {
            self.model.nodes.remove(&file);
            // It goes in the background, which counts quotas only when nothing else is left.
            let now = self.c.now;
            self.c.machine.work(1, now).unwrap();
        }
    }

    fn set_quota(&mut self) {
        let dir = self.dir();
        let subject = self.random.pick(&[
            QuotaSubject::User(1000),
            QuotaSubject::User(1001),
            QuotaSubject::Group(50),
            QuotaSubject::Group(51),
            QuotaSubject::Directory(dir),
            QuotaSubject::Directory(dir),
        ]);
        let bytes = self.random.pick(&[None, Some(100 * KIB), Some(400 * KIB), Some(1 << 40)]);
        let files = self.random.pick(&[None, Some(380), Some(1200), Some(1 << 40)]);
        let limits = QuotaLimits { bytes, files };
        let change = match self.random.below(5) {
            0 => QuotaChange::Remove,
            1 => QuotaChange::Recount,
            _ => QuotaChange::Set(limits),
        };
        self.me.caller = root();
        let done = self.c.ask(&self.me, &SetQuotaRequest { subject, change });
        if self.count("quota", done).is_some() {
            match change {
                QuotaChange::Set(limits) => drop(self.model.quotas.insert(subject, limits)),
                QuotaChange::Remove => drop(self.model.quotas.remove(&subject)),
                QuotaChange::Recount => {}
            }
        }
    }

    /// A step in the background: counts some files.
    fn work(&mut self) {
        let now = self.c.now;
        self.c.machine.work(1, now).unwrap();
    }

    /// The process is killed; nobody says that he has anything open.
    fn restart(&mut self) {
        let c = std::mem::replace(&mut self.c, Cluster::new(0));
        self.c = c.restart();
        self.c.pass_ms(11_000);
        self.c.register(1, &[1]).unwrap();
        self.me = self.c.client(root());
        self.model.nodes.values_mut().for_each(|node| node.opens = 0);
        let is_gone = |node: &Node| node.names.is_empty() && node.kind != FileKind::Directory;
        self.model.nodes.retain(|_, node| !is_gone(node));
        *self.done.entry("restart").or_default() += 1;
    }

    /// What every quota should say, from the model alone; of files with several names the server
    /// says which of them counts.
    fn check(&self) {
        let engine = self.c.machine.engine();
        let (start, end) = key::quotas();
        let stored = engine.range(&start, &end, usize::MAX).unwrap();
        let records: BTreeMap<QuotaSubject, QuotaRecord> = stored
            .iter()
            .map(|(at, value)| {
                let record = schema::decode(&value.value, "of a quota").unwrap();
                (key::quota_subject(at).unwrap(), record)
            })
            .collect();
        let subjects: Vec<_> = records.keys().copied().collect();
        assert_eq!(subjects, self.model.quotas.keys().copied().collect::<Vec<_>>());
        let mut sums: BTreeMap<QuotaSubject, (u64, u128)> = BTreeMap::new();
        for (file, node) in &self.model.nodes {
            let parent = (node.names.len() > 1).then(|| {
                let bytes = engine.get(&key::inode(*file)).unwrap().unwrap().value;
                let inode: Inode = schema::decode(&bytes, "of an inode").unwrap();
                assert!(node.names.iter().any(|(dir, _)| *dir == inode.parent));
                inode.parent
            });
            for subject in self.model.subjects(*file, parent) {
                if *file < records[&subject].counted_to {
                    let (files, bytes) = sums.entry(subject).or_default();
                    (*files, *bytes) = (*files + 1, *bytes + u128::from(node.size));
                }
            }
        }
        for (subject, record) in &records {
            let sum = sums.get(subject).copied().unwrap_or_default();
            assert_eq!((record.used_files, record.used_bytes), sum, "{subject}: {record:?}");
            assert_eq!(record.limits, self.model.quotas[subject]);
        }
        let mut reader = SnapshotReader::new();
        for (key, value) in engine.range(&[0], &[0xff], usize::MAX).unwrap() {
            reader.record(&key, &value.value, &mut drop);
        }
        let problems = reader.finish(&mut drop);
        assert!(problems.iter().all(|problem| problem.kind != Kind::Quota), "{problems:?}");
    }
}

fn run(seed: u64) -> BTreeMap<&'static str, u32> {
    println!("WEIR_SEED={seed}");
    let mut world = World::new(seed);
    for step in 0..STEPS {
        world.step();
        // The check looks at everything.
        if step % 4 == 0 || world.model.quotas.len() < 3 {
            world.check();
        }
    }
    world.c.pass_ms(2000);
    world.check();
    let (start, end) = key::quotas();
    for (_, value) in world.c.machine.engine().range(&start, &end, usize::MAX).unwrap() {
        let record: QuotaRecord = schema::decode(&value.value, "of a quota").unwrap();
        assert_eq!(record.counted_to, ALL_COUNTED);
    }
    world.done
}

#[test]
fn quotas_say_at_any_moment_what_a_plain_model_counts() {
    if let Ok(seed) = std::env::var("WEIR_SEED") {
        run(seed.parse().unwrap());
        return;
    }
    let mut done: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..10 {
        for (what, times) in run(seed) {
            *done.entry(what).or_default() += times;
        }
    }
    println!("{done:?}");
    for what in ["create", "mkdir", "unlink", "rmdir", "rename", "link", "chown", "truncate"] {
        assert!(done.get(what).is_some_and(|times| *times > 10), "{what}: {done:?}");
    }
    for what in ["room", "write", "quota", "restart", "refused", "crossing"] {
        assert!(done.get(what).is_some_and(|times| *times > 3), "{what}: {done:?}");
    }
}
