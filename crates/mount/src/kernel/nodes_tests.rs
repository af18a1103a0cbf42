use super::*;
use proptest::prelude::*;
use weir_types::{Extras, Generation, Timestamp};

const D: FileId = FileId(20);
const P: NodeId = 10;
const Q: NodeId = 11;

fn directory(file: FileId) -> Attr {
    let now = Timestamp(1);
    Attr {
        file,
        kind: FileKind::Directory,
        mode: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        atime: now,
        mtime: now,
        ctime: now,
        change: 1,
        generation: Generation(0),
        preferred_io_bytes: 4096,
        birth: None,
        extras: Extras::default(),
        sparse: false,
    }
}

fn found(nodes: &Nodes, file: FileId, parent: NodeId, name: &[u8]) -> NodeId {
    nodes.found(&directory(file), parent, name)
}

#[test]
fn a_directory_that_is_gone_is_what_it_was_until_the_kernel_has_forgotten_it() {
    let nodes = Nodes::default();
    assert_eq!(nodes.gone(D), None);
    found(&nodes, D, P, b"d");
    nodes.is_told(&Attr { mode: 0o700, ..directory(D) });
    let last = nodes.gone(D).unwrap();
    assert_eq!((last.mode, last.nlink), (0o700, 0));
    nodes.change_gone(D, |last| last.uid = 7);
    assert_eq!(nodes.gone(D).unwrap().uid, 7);
    nodes.forget(D.0, 1);
    assert_eq!(nodes.gone(D), None);
    nodes.is_told(&directory(D));
    assert!(nodes.gone(D).is_none() && !nodes.is_directory(D));
}

#[test]
fn a_directory_keeps_its_number_while_it_stays_where_it_is() {
    let nodes = Nodes::default();
    assert_eq!(found(&nodes, D, P, b"d"), 20);
    assert_eq!(found(&nodes, D, P, b"d"), 20);
    assert_eq!(found(&nodes, D, P, b"renamed"), 20, "the kernel can move it within one directory");
    assert_eq!(nodes.file(20), Some(D));
}

#[test]
fn found_elsewhere_it_gets_another_number_until_that_is_forgotten() {
    let nodes = Nodes::default();
    found(&nodes, D, P, b"d");
    let alias = found(&nodes, D, Q, b"d");
    assert_ne!(alias, 20);
    assert_eq!(nodes.file(alias), Some(D));
    assert_eq!(found(&nodes, D, Q, b"d"), alias);
    assert_eq!(found(&nodes, D, P, b"d"), 20);
    nodes.forget(alias, 1);
    assert_eq!(nodes.file(alias), Some(D));
    nodes.forget(alias, 1);
    assert_eq!(nodes.file(alias), None);
    assert_ne!(found(&nodes, D, Q, b"d"), alias, "numbers are not used again");
}

#[test]
fn the_directory_above_is_where_the_kernel_has_it() {
    let nodes = Nodes::default();
    assert_eq!(nodes.parent(FileId::ROOT.0), Some(FileId::ROOT));
    assert_eq!(nodes.parent(20), None, "nobody has told");
    assert_eq!(found(&nodes, FileId(P), FileId::ROOT.0, b"p"), P);
    found(&nodes, D, P, b"d");
    assert_eq!((nodes.parent(P), nodes.parent(20)), (Some(FileId::ROOT), Some(FileId(P))));
    nodes.moved((P, b"d"), (Q, b"d"), false);
    assert_eq!(nodes.parent(20), Some(FileId(Q)));
    let alias = found(&nodes, D, P, b"again");
    assert_eq!((nodes.parent(alias), nodes.parent(20)), (Some(FileId(P)), Some(FileId(Q))));
    // Below an alias it is the directory all the same.
    found(&nodes, FileId(21), alias, b"below");
    assert_eq!(nodes.parent(21), Some(D));
    assert_eq!(nodes.removed(Q, b"other"), None);
    assert_eq!(nodes.removed(Q, b"d"), Some(D));
    assert_eq!(nodes.parent(20), None);
}

#[test]
fn what_the_kernel_has_moved_itself_keeps_its_number() {
    let nodes = Nodes::default();
    found(&nodes, D, P, b"d");
    nodes.moved((P, b"d"), (Q, b"e"), false);
    assert_eq!(found(&nodes, D, Q, b"e"), 20);
    found(&nodes, FileId(21), P, b"other");
    nodes.moved((P, b"other"), (Q, b"e"), true);
    assert_eq!((found(&nodes, D, P, b"other"), found(&nodes, FileId(21), Q, b"e")), (20, 21));
}

#[test]
fn what_the_kernel_took_for_the_removed_is_not_given_to_it_again() {
    let nodes = Nodes::default();
    // Another mount has put something else in its place meanwhile.
    found(&nodes, D, P, b"d");
    nodes.removed(P, b"d");
    assert_ne!(found(&nodes, D, Q, b"d"), 20);
    found(&nodes, FileId(21), P, b"from");
    found(&nodes, FileId(22), P, b"to");
    nodes.moved((P, b"from"), (P, b"to"), false);
    assert_ne!(found(&nodes, FileId(22), P, b"third"), 22);
}

#[test]
fn what_was_found_by_its_number_comes_to_be_where_it_is_found_first() {
    let nodes = Nodes::default();
    assert_eq!(nodes.found_by_number(&directory(D), Some(20)), 20);
    assert_eq!(found(&nodes, D, P, b"d"), 20);
    assert_ne!(found(&nodes, D, Q, b"d"), 20);
    assert_eq!(nodes.found_by_number(&directory(FileId::ROOT), None), 1);
    nodes.forget(20, 2);
    nodes.forget(77, 1);
}

/// A model of the kernel: the directories that it knows, each at one place.
#[derive(Default)]
struct Kernel {
    known: HashMap<NodeId, (Option<NodeId>, u64)>,
}

#[derive(Clone, Debug)]
enum Step {
    /// The kernel looks up a directory of the truth through its own parent.
    Look {
        dir: usize,
        parent: usize,
    },
    /// Another mount moves it.
    Elsewhere {
        dir: usize,
        to: usize,
    },
    /// This kernel moves it, as it has it.
    Rename {
        dir: usize,
        to: usize,
    },
    Forget {
        node: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = 0..6usize;
    let step = prop_oneof![
        (n.clone(), 0..4usize).prop_map(|(dir, parent)| Step::Look { dir, parent }),
        (n.clone(), n.clone()).prop_map(|(dir, to)| Step::Elsewhere { dir, to }),
        (n.clone(), n).prop_map(|(dir, to)| Step::Rename { dir, to }),
        (0..8usize).prop_map(|node| Step::Forget { node }),
    ];
    prop::collection::vec(step, 0..80)
}

/// The id of a directory; 0 is the root.
fn file(i: usize) -> FileId {
    FileId(i as u64 + 1)
}

proptest! {
    #[test]
    fn the_kernel_never_has_to_move_a_directory_to_another(steps in steps()) {
        let nodes = Nodes::default();
        let mut kernel = Kernel::default();
        kernel.known.insert(1, (None, 1));
        // In which one directory `n + 1`, called `n`, really is; loops do no harm here.
        let mut truth = [0usize; 6];
        for step in steps {
            match step {
                Step::Look { dir, parent } => {
                    // One of the numbers that the kernel has for the parent.
                    let mut parents: Vec<NodeId> = kernel.known.keys().copied()
                        .filter(|node| nodes.file(*node) == Some(file(truth[dir]))).collect();
                    parents.sort_unstable();
                    let Some(&at) = parents.get(parent % parents.len().max(1)) else { continue };
                    let node = found(&nodes, file(dir + 1), at, format!("{dir}").as_bytes());
                    let known = kernel.known.entry(node).or_insert((Some(at), 0));
                    prop_assert_eq!(known.0, Some(at));
                    known.1 += 1;
                }
                Step::Elsewhere { dir, to } => truth[dir] = to,
                Step::Rename { dir, to } => {
                    let from: Vec<(NodeId, NodeId)> = kernel.known.iter()
                        .filter(|(node, _)| nodes.file(**node) == Some(file(dir + 1)))
                        .filter_map(|(node, (at, _))| at.map(|at| (*node, at)))
                        .filter(|(_, at)| nodes.file(*at) == Some(file(truth[dir])))
                        .collect();
                    let target = kernel.known.keys().copied()
                        .filter(|node| nodes.file(*node) == Some(file(to))).min();
                    let (Some(&(node, at)), Some(target)) = (from.iter().min(), target) else {
                        continue;
                    };
                    let name = format!("{dir}");
                    // The kernel looks before it moves.
                    let seen = found(&nodes, file(dir + 1), at, name.as_bytes());
                    let known = kernel.known.entry(seen).or_insert((Some(at), 0));
                    prop_assert_eq!(known.0, Some(at));
                    known.1 += 1;
                    if seen == node && at != target {
                        nodes.moved((at, name.as_bytes()), (target, name.as_bytes()), false);
                        kernel.known.get_mut(&node).unwrap().0 = Some(target);
                        truth[dir] = to;
                    }
                }
                Step::Forget { node } => {
                    // Nobody is below it.
                    let mut free: Vec<NodeId> = kernel.known.keys().copied()
                        .filter(|node| *node != 1)
                        .filter(|node| kernel.known.values().all(|(at, _)| *at != Some(*node)))
                        .collect();
                    free.sort_unstable();
                    let Some(&node) = free.get(node) else { continue };
                    let (_, lookups) = kernel.known.remove(&node).unwrap();
                    nodes.forget(node, lookups);
                }
            }
        }
        for (node, (_, lookups)) in kernel.known {
            prop_assert!(nodes.file(node).is_some());
            nodes.forget(node, lookups);
        }
        let table = nodes.lock();
        prop_assert!(table.held.is_empty() && table.aliases.is_empty() && table.at.is_empty());
    }
}
