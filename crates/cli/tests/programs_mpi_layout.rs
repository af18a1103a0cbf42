//! Programs in C that use files by MPI-IO under Open MPI and MPICH: hints about striping take effect
//! by `bindings/c/mpi/weir_mpi.c`, and what ranks write together is what they read.

use crate::harness::{Place, root, said};
use crate::mounted::Mounts;
use rustix::fs::getxattr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCES: [(&str, &str); 3] = [
    ("weir_mpi", include_str!("../../../bindings/c/mpi/weir_mpi.c")),
    ("blocks", include_str!("../../../bindings/c/mpi/blocks.c")),
    ("names", include_str!("../../../bindings/c/mpi/names.c")),
];
const BLOCK: usize = 30_000;
const ROUNDS: usize = 20;
const RANKS: usize = 4;
const STRIPED: [&str; 2] = ["striping_unit=131072", "striping_factor=2"];

/// An implementation of MPI, with programs that were compiled for it.
struct Mpi<'a> {
    place: &'a Place,
    launch: Vec<&'static str>,
    dir: PathBuf,
}

impl<'a> Mpi<'a> {
    /// `None`: it is not installed with its compiler.
    fn new(place: &'a Place, name: &str, launch: &[&'static str]) -> Option<Self> {
        let compiler = format!("mpicc.{name}");
        let is_there = |program: &str| {
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        // Debian has the compiler and the headers that it needs in two packages.
        let has_headers = |compiler: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo '#include <mpi.h>' | \"$0\" -E - >/dev/null 2>&1", compiler]);
            command.status().is_ok_and(|status| status.success())
        };
        if !is_there(&compiler) || !is_there(launch[0]) || !has_headers(&compiler) {
            println!("skipped: needs {compiler}, mpi.h and {} (docs/mpi.md)", launch[0]);
            return None;
        }
        let dir = place.path(name);
        std::fs::create_dir(&dir).unwrap();
        for (program, text) in SOURCES {
            let source = dir.join(format!("{program}.c"));
            std::fs::write(&source, text).unwrap();
            let mut cc = Command::new(&compiler);
            cc.args(["-O1", "-Wall", "-Wextra", "-Werror"]).arg(&source).arg("-o");
            match program {
                "weir_mpi" => cc.arg(dir.join("weir_mpi.so")).args(["-shared", "-fPIC"]),
                _ => cc.arg(dir.join(program)),
            };
            place.prepare(&mut cc);
            said(cc).ok();
        }
        Some(Self { place, launch: launch.to_vec(), dir })
    }

    /// Runs a program in four processes, with `weir_mpi.so` or without.
    fn run(
        &self,
        more: &[&str],
        with: bool,
        program: &str,
        arguments: &[&str],
    ) -> serde_json::Value {
        let mut mpi = Command::new(self.launch[0]);
        self.place.prepare(&mut mpi);
        // As in `programs_mpi`.
        mpi.env("TMPDIR", self.place.path("."));
        mpi.args(&self.launch[1..]).args(more).args(["-n", &RANKS.to_string(), "env"]);
        if with {
            mpi.arg(format!("LD_PRELOAD={}", self.dir.join("weir_mpi.so").display()));
        }
        mpi.arg(self.dir.join(program)).args(arguments);
        let out = said(mpi).ok();
        serde_json::from_str(out.trim()).unwrap_or_else(|e| panic!("{e}: {out}"))
    }

    fn blocks(&self, more: &[&str], with: bool, file: &Path, how: &str, hints: &[&str]) {
        let (bytes, rounds) = (BLOCK.to_string(), ROUNDS.to_string());
        let arguments = [file.to_str().unwrap(), &bytes, &rounds, how];
        let told = self.run(more, with, "blocks", &[&arguments, hints].concat());
        assert_eq!(told["ranks"], RANKS, "{told}");
        assert_eq!(file.metadata().unwrap().len() as usize, BLOCK * ROUNDS * RANKS);
    }
}

fn layout(path: &Path) -> Option<String> {
    let mut value = [0; 128];
    let n = getxattr(path, "user.weir.layout", &mut value[..]).ok()?;
    Some(String::from_utf8(value[..n].to_vec()).unwrap())
}

#[test]
fn hints_about_striping_take_effect_and_what_is_written_together_is_read() {
    if !root() {
        return;
    }
    let place = Place::new();
    let openmpi = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--timeout", "60"];
    let romio = &["--mca", "io", "^ompio"][..];
    let cases = [
        ("openmpi", &openmpi[..], vec![&["--mca", "io", "ompio"][..], romio]),
        ("mpich", &["mpirun.mpich"], vec![&[][..]]),
    ];
    let mut mounts = None;
    for (name, launch, ways) in cases {
        let Some(mpi) = Mpi::new(&place, name, launch) else { continue };
        let mounts = mounts.get_or_insert_with(|| Mounts::new(&place, "mpi", 1));
        let at = mounts.at[0].join(name);
        std::fs::create_dir(&at).unwrap();
        for (number, way) in ways.iter().enumerate() {
            let file = |what: &str| at.join(format!("{what}{number}"));
            let buffers = ["romio_cb_write=enable", "romio_cb_read=enable", "cb_nodes=2"];
            let hints = [&STRIPED[..], &buffers].concat();
            mpi.blocks(way, true, &file("hints"), "together", &hints);
            assert_eq!(layout(&file("hints")).as_deref(), Some("unit=131072,count=2,copies=1"));
            let of_two = file("hints").metadata().unwrap().blksize();
            assert_eq!(of_two % (2 * 131_072), 0, "whole stripes");
            mpi.blocks(way, true, &file("one"), "each", &STRIPED[1..]);
            assert!(layout(&file("one")).unwrap().ends_with("count=2,copies=1"));
            // Bad hints change nothing.
            mpi.blocks(way, true, &file("bad"), "together", &["striping_unit=1000"]);
            mpi.blocks(way, false, &file("without"), "each", &STRIPED);
            assert_eq!(layout(&file("bad")), layout(&file("without")));
            // Not on Weir.
            let elsewhere = place.path(&format!("{name}{number}"));
            mpi.blocks(way, true, &elsewhere, "each", &STRIPED);
            assert_eq!(layout(&elsewhere), None);
        }
        std::fs::create_dir(at.join("names")).unwrap();
        let told = mpi.run(ways[0], false, "names", &[at.join("names").to_str().unwrap(), "50"]);
        assert_eq!(told["files"], 50 * RANKS);
    }
}
