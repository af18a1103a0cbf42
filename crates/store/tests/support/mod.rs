//! A target in a temporary directory, and a reader that verifies as a client
//! does.

use std::path::{Path, PathBuf};
use weir_store::{Object, ReadMode, ReadOutcome, Target, TargetIdentity};
use weir_types::checksum::crc32c;
use weir_types::{
    ColumnIndex, CopyIndex, FileId, Generation, ObjectId, Result, SegmentIndex, ServerId, TargetId,
};

pub const BLOCK: u64 = 4096;
/// The first byte whose checksum is not in the first page of the file.
pub const PAGE_BORDER: u64 = 896 * BLOCK;
/// The first byte of the second section.
pub const SECTION_BORDER: u64 = 32_640 * BLOCK;
pub const G0: Generation = Generation(0);

pub const IDENTITY: TargetIdentity =
    TargetIdentity { cluster: [7; 16], target: TargetId(3), server: ServerId(1) };

pub fn object_id(file: u64) -> ObjectId {
    ObjectId {
        file: FileId(file),
        segment: SegmentIndex(0),
        column: ColumnIndex(0),
        copy: CopyIndex(0),
    }
}

pub struct TestTarget {
    pub dir: tempfile::TempDir,
    pub target: Target,
}

impl TestTarget {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Target::create(dir.path(), IDENTITY).unwrap();
        let target = Target::open(dir.path()).unwrap();
        Self { dir, target }
    }

    /// As after a restart of the server.
    pub fn reopen(self) -> Self {
        let Self { dir, target } = self;
        drop(target);
        let target = Target::open(dir.path()).unwrap();
        Self { dir, target }
    }

    /// After `kill -9` of the server and a restart.
    pub fn kill_and_reopen(self) -> Self {
        let Self { dir, target } = self;
        target.drop_unclosed();
        let target = Target::open(dir.path()).unwrap();
        Self { dir, target }
    }

    /// Turned back into what a program of the first format would have written.
    pub fn into_version_1(self) -> Self {
        let Self { dir, target } = self;
        drop(target);
        let down = |path: PathBuf| {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[8] = 1;
            if bytes[3] == b'R' && bytes[4] == b'O' {
                bytes[40..48].fill(0);
            }
            let check = crc32c(&bytes[..508]);
            bytes[508..512].copy_from_slice(&check.to_le_bytes());
            let file = std::fs::File::options().write(true).open(path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes[..512], 0).unwrap();
        };
        for file in object_files(dir.path()) {
            down(file);
        }
        down(dir.path().join("superblock"));
        std::fs::remove_file(dir.path().join("intents")).unwrap();
        let target = Target::open(dir.path()).unwrap();
        Self { dir, target }
    }

    /// The only object file.
    pub fn only_file(&self) -> PathBuf {
        let mut files = object_files(self.dir.path());
        assert_eq!(files.len(), 1);
        files.remove(0)
    }
}

/// The files of all objects of a target.
pub fn object_files(target: &Path) -> Vec<PathBuf> {
    let hash_directories = std::fs::read_dir(target.join("objects")).unwrap();
    hash_directories
        .flat_map(|hash| std::fs::read_dir(hash.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect()
}

/// The checksum of each cut of the pieces, as a client computes them.
pub fn checks_of(pieces: &[(u64, u64)], data: &[u8]) -> Vec<u32> {
    let (mut checks, mut rest) = (Vec::new(), data);
    for &(offset, len) in pieces {
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let cut = (BLOCK - at % BLOCK).min(end - at);
            let (bytes, others) = rest.split_at(cut as usize);
            checks.push(crc32c(bytes));
            rest = others;
            at += cut;
        }
    }
    checks
}

pub fn write_pieces(
    object: &Object,
    pieces: &[(u64, u64)],
    data: &[u8],
    generation: Generation,
) -> Result<u64> {
    object.write_pieces(pieces, data, &checks_of(pieces, data), generation)
}

pub fn write(object: &Object, offset: u64, data: &[u8]) -> u64 {
    write_pieces(object, &[(offset, data.len() as u64)], data, G0).unwrap()
}

/// The result of a read that the client has verified.
#[derive(Debug, PartialEq)]
pub enum Received {
    Good(Vec<u8>),
    Mismatch,
    WouldBlock,
}

/// Reads and verifies every cut as a client does.
pub fn read_pieces(object: &Object, pieces: &[(u64, u64)], mode: ReadMode) -> Result<Received> {
    let total: u64 = pieces.iter().map(|p| p.1).sum();
    let mut buf = vec![0xee; total as usize];
    let mut checks = vec![42];
    let outcome = object.read_pieces(pieces, &mut buf, &mut checks, mode);
    if !matches!(outcome, Ok(ReadOutcome::Done { .. })) {
        assert_eq!(checks, [42], "checksums of a read that was not done");
    }
    let ReadOutcome::Done { bytes, object_bytes } = outcome? else {
        return Ok(Received::WouldBlock);
    };
    let clipped: Vec<(u64, u64)> = pieces
        .iter()
        .map(|&(offset, len)| (offset, (offset + len).min(object_bytes).saturating_sub(offset)))
        .collect();
    assert_eq!(bytes as u64, clipped.iter().map(|p| p.1).sum::<u64>());
    buf.truncate(bytes);
    let good = checks[1..] == checks_of(&clipped, &buf);
    Ok(if good { Received::Good(buf) } else { Received::Mismatch })
}

/// The bytes of a range, verified by both sides.
pub fn read(object: &Object, offset: u64, len: u64) -> Vec<u8> {
    match read_pieces(object, &[(offset, len)], ReadMode::Locked).unwrap() {
        Received::Good(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Runs a test in a process of its own: this program is started again for it. For properties of a
/// whole process.
pub fn alone(test: &str, run: impl FnOnce()) {
    const ALONE: &str = "WEIR_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return run();
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let said = again.args(["--exact", test, "--nocapture"]).env(ALONE, "").output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&said.stdout));
    assert!(said.status.success(), "{}", text(&said.stderr));
}
