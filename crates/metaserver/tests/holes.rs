//! Files that may have holes, of which only data servers know what they take.

use crate::harness::*;
use weir_metastore::ModelEngine;
use weir_types::{ErrorKind, FileId};
use weir_wire::meta::*;

/// A file of a new cluster.
struct Of {
    c: Cluster<ModelEngine>,
    me: Client,
    open: OpenFile,
}

impl Of {
    fn new() -> Self {
        let mut c = Cluster::new(2);
        let mut me = c.client(root());
        let open = c.create(&mut me, FileId::ROOT, "f");
        Self { c, me, open }
    }

    /// Commits a size; says whether the file may have holes then.
    fn commits(&mut self, size: u64, ranges: &[(u64, u64)]) -> bool {
        let request = CommitSizeRequest { ranges: ranges.to_vec(), ..commit(&self.open, size) };
        self.c.make(&mut self.me, &request).unwrap().sparse
    }

    fn cuts(&mut self, size: u64) -> bool {
        let file = self.open.attr.file;
        self.open.attr = self.c.make(&mut self.me, &set_size(file, size)).unwrap().attr;
        self.open.attr.sparse
    }
}

#[test]
fn what_is_confirmed_from_the_beginning_on_is_no_hole() {
    let mut f = Of::new();
    assert!(!f.open.attr.sparse);
    assert!(!f.commits(100, &[(0, 100)]));
    assert!(f.commits(300, &[]), "the bytes are still on their way");
    assert!(f.commits(300, &[(0, 200)]));
    assert!(!f.commits(300, &[(100, 300)]));
    assert!(f.commits(500, &[(400, 500)]), "behind the end");
    assert!(f.commits(0, &[(301, 400)]), "a byte is missing");
    assert!(!f.commits(0, &[(0, 301), (301, 500)]));
}

#[test]
fn a_longer_file_has_holes_until_they_are_cut_off_or_filled() {
    let mut f = Of::new();
    assert!(f.cuts(1000));
    assert!(f.commits(0, &[(0, 400)]) && f.cuts(401));
    assert!(!f.cuts(400));
    assert!(f.cuts(500) && !f.commits(0, &[(400, 500)]));
    // Whoever was cut off meanwhile has written nothing.
    let late = CommitSizeRequest { ranges: vec![(0, 900)], ..commit(&f.open, 900) };
    assert!(!f.cuts(50) && f.cuts(800));
    let refused = f.c.make(&mut f.me, &late).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Stale);
    assert!(f.commits(0, &[]));
}

#[test]
fn where_holes_are_made_nothing_is_sure_until_the_file_is_emptied() {
    let mut f = Of::new();
    assert!(!f.commits(100, &[(0, 100)]));
    let change = f.open.attr.change;
    let note = CommitSizeRequest { sparse: true, mtime: None, ..commit(&f.open, 0) };
    let noted = f.c.make(&mut f.me, &note).unwrap();
    assert!(noted.sparse && noted.change > change && noted.size == 100);
    // Again: whoever has asked what it takes has to ask anew.
    assert!(f.c.make(&mut f.me, &note).unwrap().change > noted.change);
    assert!(f.commits(200, &[(0, 200)]) && f.cuts(20));
    assert!(!f.cuts(0) && !f.commits(100, &[(0, 100)]));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut f = Of::new();
    for ranges in [vec![(5, 5)], vec![(6, 5)], vec![(5, 6), (1, 2)]] {
        let request = CommitSizeRequest { ranges, ..commit(&f.open, 10) };
        let refused = f.c.make(&mut f.me, &request).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidArgument);
    }
    let ranges = (0..17).map(|n| (2 * n, 2 * n + 1)).collect();
    let many = CommitSizeRequest { ranges, ..commit(&f.open, 10) };
    assert_eq!(f.c.make(&mut f.me, &many).unwrap_err().kind, ErrorKind::TooBig);
}
