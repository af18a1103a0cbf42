//! Random operations against a plain model of POSIX, on the model engine and
//! on the embedded one, with the process killed now and then.

use crate::harness::posix;
use crate::harness::posix::{Node, Posix, What};
use crate::harness::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_metastore::{Embedded, Engine, ModelEngine};
use weir_types::{Error, ErrorKind, FileId, FileKind};
use weir_wire::meta::*;

const TARGETS: u32 = 2;

#[derive(Clone, Debug)]
enum Step {
    Create { dir: usize, name: u8, mode: u16, exclusive: bool },
    Mkdir { dir: usize, name: u8, mode: u16 },
    Symlink { dir: usize, name: u8 },
    Unlink { dir: usize, name: u8 },
    Rmdir { dir: usize, name: u8 },
    Link { node: usize, dir: usize, name: u8 },
    Rename { from: usize, name: u8, to: usize, new_name: u8, no_replace: bool, exchange: bool },
    SetSize { node: usize, size: u64 },
    Chmod { node: usize, mode: u16 },
    SetXattr { node: usize, name: u8, value: u8 },
    RemoveXattr { node: usize, name: u8 },
    Kill,
    Wait,
}

fn steps(kills: u32) -> impl Strategy<Value = Vec<Step>> {
    let any_node = any::<prop::sample::Index>().prop_map(|i| i.index(1 << 16));
    let node = || any_node.clone();
    let name = 0u8..5;
    let mode = 0u16..0o1000;
    let one = prop_oneof![
        6 => (node(), name.clone(), mode.clone(), any::<bool>())
            .prop_map(|(dir, name, mode, exclusive)| Step::Create { dir, name, mode, exclusive }),
        6 => (node(), name.clone(), mode.clone())
            .prop_map(|(dir, name, mode)| Step::Mkdir { dir, name, mode }),
        1 => (node(), name.clone()).prop_map(|(dir, name)| Step::Symlink { dir, name }),
        4 => (node(), name.clone()).prop_map(|(dir, name)| Step::Unlink { dir, name }),
        3 => (node(), name.clone()).prop_map(|(dir, name)| Step::Rmdir { dir, name }),
        2 => (node(), node(), name.clone())
            .prop_map(|(node, dir, name)| Step::Link { node, dir, name }),
        8 => (node(), name.clone(), node(), name.clone(), 0u8..8).prop_map(
            |(from, name, to, new_name, flags)| Step::Rename {
                from, name, to, new_name, no_replace: flags == 0, exchange: flags > 4,
            }
        ),
        2 => (node(), prop_oneof![Just(0u64), 0u64..1 << 20])
            .prop_map(|(node, size)| Step::SetSize { node, size }),
        1 => (node(), mode).prop_map(|(node, mode)| Step::Chmod { node, mode }),
        2 => (node(), name.clone(), any::<u8>())
            .prop_map(|(node, name, value)| Step::SetXattr { node, name, value }),
        1 => (node(), name).prop_map(|(node, name)| Step::RemoveXattr { node, name }),
        kills => Just(Step::Kill),
        1 => Just(Step::Wait),
    ];
    prop::collection::vec(one, 1..120)
}

/// The server, the model, and which file is which node.
struct Both<E: Engine> {
    c: Cluster<E>,
    me: Client,
    model: Posix,
    files: Vec<FileId>,
    dirs: BTreeSet<Node>,
    gone_dirs: BTreeSet<Node>,
}

fn text(name: u8) -> String {
    format!("n{name}")
}

impl<E: Engine> Both<E> {
    fn new(engine: E) -> Self {
        let mut c = Cluster::on(engine, TARGETS);
        let me = c.client(root());
        Self {
            c,
            me,
            model: Posix::new(),
            files: vec![FileId::ROOT],
            dirs: BTreeSet::new(),
            gone_dirs: BTreeSet::new(),
        }
    }

    /// A node to work in: one that is there, or a directory that was.
    fn pick(&self, index: usize) -> Node {
        let usable =
            |&node: &Node| self.model.nodes[node].is_some() || self.gone_dirs.contains(&node);
        let usable: Vec<Node> = (0..self.files.len()).filter(usable).collect();
        let dirs: Vec<Node> = self
            .model
            .alive()
            .filter(|(_, inode)| matches!(inode.what, What::Directory { .. }))
            .map(|(node, _)| node)
            .collect();
        // Mostly directories, or little would ever succeed.
        if index.is_multiple_of(8) {
            usable[index / 8 % usable.len()]
        } else {
            dirs[index % dirs.len()]
        }
    }

    fn pick_alive(&self, index: usize) -> Node {
        let alive: Vec<Node> = self.model.alive().map(|(node, _)| node).collect();
        alive[index % alive.len()]
    }

    fn compare<T>(
        &mut self,
        step: &Step,
        real: Result<T, Error>,
        model: Result<(), ErrorKind>,
    ) -> Option<T> {
        assert_eq!(real.as_ref().map(|_| ()).map_err(|e| e.kind), model, "{step:?}");
        real.ok()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Create { dir, name, mode, exclusive } => {
                let dir = self.pick(dir);
                let request = CreateRequest {
                    mode,
                    exclusive,
                    ..create_request(self.files[dir], &text(name))
                };
                let real = self.c.make(&mut self.me, &request);
                let known = self.model.nodes.len();
                let expected = self.model.create(dir, &text(name), mode, exclusive);
                if let Some(open) = self.compare(step, real, expected.map(drop)) {
                    self.note(open.attr.file, known, expected);
                    let file = open.attr.file;
                    self.c.close(&mut self.me, file);
                }
            }
            Step::Mkdir { dir, name, mode } => {
                let dir = self.pick(dir);
                let (parent, name) = (self.files[dir], text(name));
                let request = MkdirRequest { parent, name: name.as_bytes().into(), mode, umask: 0 };
                let real = self.c.make(&mut self.me, &request);
                let known = self.model.nodes.len();
                let expected = self.model.mkdir(dir, &name, mode);
                if let Some(attr) = self.compare(step, real, expected.map(drop)) {
                    self.note(attr.file, known, expected);
                }
            }
            Step::Symlink { dir, name } => {
                let dir = self.pick(dir);
                let (parent, name) = (self.files[dir], text(name));
                let request = SymlinkRequest {
                    parent,
                    name: name.as_bytes().into(),
                    target: b"../to"[..].into(),
                };
                let real = self.c.make(&mut self.me, &request);
                let known = self.model.nodes.len();
                let expected = self.model.symlink(dir, &name, "../to");
                if let Some(attr) = self.compare(step, real, expected.map(drop)) {
                    self.note(attr.file, known, expected);
                }
            }
            Step::Unlink { dir, name } => {
                let dir = self.pick(dir);
                let request = UnlinkRequest {
                    parent: self.files[dir],
                    name: text(name).as_bytes().into(),
                    hold: false,
                };
                let real = self.c.make(&mut self.me, &request);
                let expected = self.model.unlink(dir, &text(name));
                self.compare(step, real, expected);
            }
            Step::Rmdir { dir, name } => {
                let dir = self.pick(dir);
                let request =
                    RmdirRequest { parent: self.files[dir], name: text(name).as_bytes().into() };
                let real = self.c.make(&mut self.me, &request);
                let expected = self.model.rmdir(dir, &text(name));
                self.compare(step, real, expected);
            }
            Step::Link { node, dir, name } => {
                let (node, dir) = (self.pick_alive(node), self.pick(dir));
                let (file, parent) = (self.files[node], self.files[dir]);
                let request = LinkRequest { file, parent, name: text(name).as_bytes().into() };
                let real = self.c.make(&mut self.me, &request);
                let expected = self.model.link(node, dir, &text(name));
                self.compare(step, real, expected);
            }
            Step::Rename { from, name, to, new_name, no_replace, exchange } => {
                let (from, to) = (self.pick(from), self.pick(to));
                let (name, new_name) = (text(name), text(new_name));
                let request = RenameRequest {
                    no_replace,
                    exchange,
                    ..rename_request((self.files[from], &name), (self.files[to], &new_name))
                };
                let real = self.c.make(&mut self.me, &request);
                let expected =
                    self.model.rename((from, &name), (to, &new_name), no_replace, exchange);
                self.compare(step, real, expected);
            }
            Step::SetSize { node, size } => {
                let node = self.pick_alive(node);
                let real = self.c.make(&mut self.me, &set_size(self.files[node], size));
                let expected = self.model.set_size(node, size);
                self.compare(step, real, expected);
            }
            Step::Chmod { node, mode } => {
                let node = self.pick_alive(node);
                let request = SetAttrRequest { mode: Some(mode), ..set_nothing(self.files[node]) };
                let real = self.c.make(&mut self.me, &request);
                let expected = self.model.chmod(node, mode);
                self.compare(step, real, expected);
            }
            Step::SetXattr { node, name, value } => {
                let node = self.pick_alive(node);
                let name = format!("user.{name}");
                let request = SetXattrRequest {
                    file: self.files[node],
                    name: name.as_bytes().into(),
                    value: [value][..].into(),
                    mode: XattrMode::Any,
                };
                let real = self.c.make(&mut self.me, &request);
                let expected = self.model.set_xattr(node, &name, &[value]);
                self.compare(step, real, expected);
            }
            Step::RemoveXattr { node, name } => {
                let node = self.pick_alive(node);
                let name = format!("user.{name}");
                let file = self.files[node];
                let request = RemoveXattrRequest { file, name: name.as_bytes().into() };
                let real = self.c.make(&mut self.me, &request);
                let expected = self.model.remove_xattr(node, &name);
                self.compare(step, real, expected);
            }
            Step::Wait => {
                self.c.pass_ms(2_000);
                let reports = (1..=TARGETS).map(Cluster::<E>::report).collect();
                self.c.heartbeat(1, reports).unwrap();
            }
            Step::Kill => {}
        }
        let gone = |node: &&Node| self.model.nodes[**node].is_none();
        self.gone_dirs = self.dirs.iter().filter(gone).copied().collect();
    }

    fn note(&mut self, file: FileId, known: usize, expected: Result<Node, ErrorKind>) {
        let node = expected.unwrap();
        if node < known {
            assert_eq!(self.files[node], file);
            return;
        }
        assert!(!self.files.contains(&file), "an id came twice");
        self.files.push(file);
        if matches!(self.model.inode(node).unwrap().what, What::Directory { .. }) {
            self.dirs.insert(node);
        }
    }

    /// Walks the whole tree and compares everything that can be seen.
    fn check(&mut self) {
        let mut waiting = vec![posix::ROOT];
        let mut seen = BTreeSet::from([posix::ROOT]);
        while let Some(dir) = waiting.pop() {
            self.check_node(dir);
            let inode = self.model.inode(dir).unwrap().clone();
            let What::Directory { entries, parent } = inode.what else { continue };
            let up = self.c.lookup(&self.me, self.files[dir], "..").unwrap();
            assert_eq!(up.file, self.files[parent]);
            let expected: BTreeMap<String, FileId> =
                entries.iter().map(|(name, &node)| (name.clone(), self.files[node])).collect();
            let request = ReaddirRequest {
                last: 0,
                dir: self.files[dir],
                cookie: 0,
                max_entries: 1000,
                attributes: true,
                layouts: false,
            };
            let page = self.c.ask(&self.me, &request).unwrap();
            let listed: BTreeMap<String, FileId> = page
                .entries
                .iter()
                .map(|e| (String::from_utf8(e.name.0.clone()).unwrap(), e.file))
                .collect();
            assert_eq!((listed.len(), &listed), (page.entries.len(), &expected));
            for entry in page.entries {
                let attr = entry.attr.unwrap();
                assert_eq!((attr.file, attr.kind), (entry.file, entry.kind));
            }
            waiting.extend(entries.values().filter(|&&node| seen.insert(node)));
        }
        assert_eq!(seen.len(), self.model.alive().count());
    }

    fn check_node(&mut self, node: Node) {
        let file = self.files[node];
        let inode = self.model.inode(node).unwrap().clone();
        let attr = self.c.getattr(&self.me, file).unwrap();
        assert_eq!((attr.nlink, attr.mode), (inode.nlink, inode.mode), "{file} {inode:?}");
        match inode.what {
            What::File { size } => assert_eq!((attr.kind, attr.size), (FileKind::File, size)),
            What::Directory { .. } => assert_eq!(attr.kind, FileKind::Directory),
            What::Symlink { target } => {
                let says = self.c.ask(&self.me, &ReadlinkRequest { file }).unwrap();
                assert_eq!(says.0, target.as_bytes());
            }
        }
        let names = self.c.ask(&self.me, &ListXattrRequest { file }).unwrap();
        assert_eq!(names.len(), inode.xattrs.len());
        for (name, value) in inode.xattrs {
            let request = GetXattrRequest { file, name: name.as_bytes().into() };
            assert_eq!(self.c.ask(&self.me, &request).unwrap().0, value);
        }
    }

    /// When all is closed and collected, the store holds exactly what there is.
    fn check_store(&mut self) {
        self.c.pass_ms(20_000);
        let count = |what: fn(&What) -> bool| {
            self.model.alive().filter(|(_, inode)| what(&inode.what)).count()
        };
        let files = count(|w| matches!(w, What::File { .. }));
        let links = count(|w| matches!(w, What::Symlink { .. }));
        let xattrs: usize = self.model.alive().map(|(_, inode)| inode.xattrs.len()).sum();
        let names: usize = self
            .model
            .alive()
            .map(|(_, inode)| match &inode.what {
                What::Directory { entries, .. } => entries.len(),
                _ => 0,
            })
            .sum();
        let c = &self.c;
        assert_eq!(c.keys("i/"), self.model.alive().count(), "inodes");
        assert_eq!((c.keys("d/"), c.keys("c/")), (names, names), "names");
        assert_eq!((c.keys("s/"), c.keys("l/"), c.keys("x/")), (files, links, xattrs));
        assert_eq!((c.keys("o/"), c.keys("q/")), (0, 0));
        assert_eq!(c.keys("g/"), self.model.discarded * TARGETS as usize, "garbage");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn the_namespace_is_that_of_posix(steps in steps(1)) {
        let mut both = Both::new(ModelEngine::new());
        for step in &steps {
            both.apply(step);
            if matches!(step, Step::Kill) {
                both.c = both.c.restart();
            }
        }
        both.check();
        both.check_store();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn the_namespace_survives_kills_on_the_embedded_engine(steps in steps(3)) {
        let dir = tempfile::tempdir().unwrap();
        let mut both: Both<Embedded> = Both::new(embedded(dir.path()));
        for step in &steps {
            both.apply(step);
            if matches!(step, Step::Kill) {
                both.c = both.c.restart_in(dir.path());
            }
        }
        both.check();
        both.c = both.c.restart_in(dir.path());
        both.check();
        both.check_store();
    }
}
