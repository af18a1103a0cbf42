//! A parallel program that uses a file by MPI-IO, as simulations do: four ranks on two mounts (two
//! nodes), through both libraries for it that Open MPI has. ROMIO, which most others have as well,
//! relies on POSIX locks among nodes for the shared file pointer, for atomic mode, and for data
//! sieving (it reads what lies between the blocks of a rank, and writes it back under a lock).

use crate::harness::{Place, root, said};
use crate::mounted::Mounts;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Debian's, for which its package is.
const PYTHON: &str = "/usr/bin/python3";

/// As in `ranks.py`.
const HEADER: usize = 13;
const BLOCK: usize = 3001;
const BLOCKS: usize = 50;
const TILES: usize = 2;
const RECORD: usize = 1000;
const RECORDS: usize = 40;
const ATOM: usize = 1024;
const ATOMS: usize = 64;
const ROUNDS: usize = 10;
const RANKS: usize = 4;

const ROMIO: &[&str] = &["--mca", "io", "^ompio"];
const OMPIO: &[&str] = &["--mca", "io", "ompio"];
/// All ranks write for others: there is one machine, so that it were one else.
const AGGREGATORS: [&str; 3] = ["cb_nodes=4", "cb_config_list=*:4", "cb_buffer_size=65536"];

struct Ranks<'a> {
    place: &'a Place,
    mounts: Mounts<'a>,
    program: PathBuf,
}

impl<'a> Ranks<'a> {
    /// `None`: not root, or there is no MPI.
    fn new(place: &'a Place) -> Option<Self> {
        if !root() {
            return None;
        }
        let has = |words: &[&str]| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).stderr(Stdio::null()).stdout(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        if !has(&["mpirun", "--version"]) || !has(&[PYTHON, "-c", "import mpi4py"]) {
            println!("skipped: needs mpirun and mpi4py (openmpi-bin, python3-mpi4py)");
            return None;
        }
        let program = place.path("ranks.py");
        std::fs::write(&program, include_str!("programs_mpi/ranks.py")).unwrap();
        Some(Self { place, mounts: Mounts::new(place, "mpi", 2), program })
    }

    /// Runs it, two ranks on each mount; the file's bytes, by a plain read on each.
    fn file(&self, way: &str, name: &str, library: &[&str], hints: &[&str]) -> Vec<u8> {
        let mut mpi = Command::new("mpirun");
        self.place.prepare(&mut mpi);
        // Two that begin at a time make one directory below the usual one, and one of them fails.
        mpi.env("TMPDIR", self.place.path("."));
        mpi.args(["--allow-run-as-root", "--oversubscribe", "--timeout", "60"]).args(library);
        // Shared pointers in a file, as between machines.
        mpi.args(["--mca", "sharedfp", "lockedfile"]);
        for (i, at) in self.mounts.at.iter().enumerate() {
            mpi.args((i > 0).then_some(":")).args(["-n", "2"]);
            mpi.arg(PYTHON).arg(&self.program).arg(way).arg(at.join(name)).args(hints);
        }
        said(mpi).ok();
        let read = |at: &PathBuf| std::fs::read(at.join(name)).unwrap();
        let [bytes, other] = [&self.mounts.at[0], &self.mounts.at[1]].map(read);
        assert!(bytes == other, "{name}: the mounts differ");
        bytes
    }
}

fn assert_views(bytes: &[u8], name: &str) {
    assert_eq!(bytes.len(), HEADER + TILES * BLOCKS * BLOCK * RANKS, "{name}");
    let second = HEADER + BLOCKS * BLOCK * RANKS;
    let byte_at = |at: usize| {
        let generation = u64::from(at >= second);
        (((at as u64).wrapping_mul(2_654_435_761) >> 13) + 101 * generation) as u8
    };
    let wrong = bytes.iter().enumerate().find(|(at, byte)| **byte != byte_at(*at));
    assert_eq!(wrong, None, "{name}");
}

fn assert_records(bytes: &[u8], name: &str) {
    let number = |record: &[u8]| {
        let number = usize::from(u16::from_le_bytes([record[0], record[1]]));
        assert!(record[2..].iter().all(|byte| usize::from(*byte) == number % 251), "{name}: torn");
        number
    };
    assert_eq!(bytes.len(), RECORD * RANKS * (RECORDS + 1), "{name}");
    let mut numbers: Vec<usize> = bytes.chunks(RECORD).map(number).collect();
    // The last ones were written in the order of ranks, those before in any.
    numbers[..RANKS * RECORDS].sort_unstable();
    assert!(numbers.iter().copied().eq(0..RANKS * (RECORDS + 1)), "{name}: {numbers:?}");
}

fn assert_atoms(bytes: &[u8], name: &str) {
    // What lies between ends with the last block.
    assert_eq!(bytes.len(), 2 * ATOMS * ATOM, "{name}");
    let last = bytes[0];
    assert!(usize::from(last) >= RANKS * (ROUNDS - 1), "{name}: {last} is not of the last round");
    for (i, part) in bytes.chunks(ATOM).enumerate() {
        let should = if i % 2 == 0 { last } else { 0xee };
        assert!(part.iter().all(|byte| *byte == should), "{name}: part {i} is {part:?}");
    }
}

#[test]
fn interleaved_blocks_of_ranks_are_where_their_views_say() {
    let place = Place::new();
    let Some(ranks) = Ranks::new(&place) else { return };
    let file = |name, library, hints: &[&str]| {
        assert_views(&ranks.file("views", name, library, hints), name);
    };
    file("romio", ROMIO, &AGGREGATORS);
    // Without buffers for all, each rank reads, changes and writes back what is others' too.
    let sieving = ["romio_cb_write=disable", "romio_cb_read=disable", "romio_ds_write=enable"];
    file("sieving", ROMIO, &[&sieving[..], &["ind_wr_buffer_size=50000"]].concat());
    file("ompio", OMPIO, &[]);
}

#[test]
fn ranks_share_a_file_pointer() {
    let place = Place::new();
    let Some(ranks) = Ranks::new(&place) else { return };
    for (name, library) in [("romio", ROMIO), ("ompio", OMPIO)] {
        assert_records(&ranks.file("shared", name, library, &[]), name);
    }
}

#[test]
fn in_atomic_mode_what_ranks_write_over_each_other_is_not_mixed() {
    let place = Place::new();
    let Some(ranks) = Ranks::new(&place) else { return };
    // OMPIO has no such mode, though it says that it has.
    assert_atoms(&ranks.file("atomic", "romio", ROMIO, &[]), "romio");
}
