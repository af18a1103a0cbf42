//! Tests on a cluster: layouts, ways of reading, launchers.

use crate::cluster::Cluster;
use crate::runs::{
    COUNT, GREP, NEEDLE, SORT, command, counted, found, job, printed, records, sorted, text,
};
use std::fs;
use std::process::{Command, Stdio};

const LAYOUTS: [(&str, &[&str]); 3] = [
    ("striped", &["--layout", "striped", "--unit", "64K"]),
    ("chunked", &["--layout", "chunked", "--chunk", "1M", "--copies", "2"]),
    ("single", &["--layout", "striped", "--count", "1"]),
];

struct Case {
    cluster: Cluster,
    text: String,
    records: Vec<u8>,
}

impl Case {
    /// A cluster with the inputs in a directory for each layout.
    fn new() -> Self {
        let case = Self { cluster: Cluster::up(), text: text(6_000), records: records(20_000) };
        let [text, records] = ["text", "records"].map(|name| case.cluster.path(name));
        fs::write(&text, &case.text).unwrap();
        fs::write(&records, &case.records).unwrap();
        for (name, layout) in LAYOUTS {
            let dir = format!("weir:/{name}");
            case.cluster.weir(&["mkdir", &dir]);
            case.cluster.weir(&[&["setlayout"], layout, &[&dir]].concat());
            let [text, records] = [&text, &records].map(|path| path.to_str().unwrap());
            case.cluster.weir(&["cp", "--quiet", text, records, &dir]);
        }
        case
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = command(program, arguments);
        self.cluster.prepare(&mut command);
        command
    }

    /// Runs all programs in one directory; `run` runs one.
    fn check(&self, dir: &str, what: &str, run: &mut dyn FnMut(&str, &[&str]) -> String) {
        let path = |name: &str| format!("weir:/{dir}/{name}");
        let lines = run(GREP, &[NEEDLE, &path("text")]);
        assert!(lines == found(&self.text), "grep, {dir}, {what}");
        run(COUNT, &[&path("text"), "--output", &path("words")]);
        assert!(self.output(&path("words")) == counted(&self.text).as_bytes(), "{dir}, {what}");
        run(SORT, &[&path("records"), "--output", &path("sorted")]);
        assert!(self.output(&path("sorted")) == sorted(&self.records), "sort, {dir}, {what}");
        let left = self.cluster.weir(&["ls", "-a", &format!("weir:/{dir}")]);
        assert!(!left.contains(".weir-"), "{dir}, {what}: {left}");
    }

    fn output(&self, name: &str) -> Vec<u8> {
        let local = self.cluster.path("output");
        self.cluster.weir(&["cp", "--quiet", name, local.to_str().unwrap()]);
        fs::read(local).unwrap()
    }
}

#[test]
fn the_same_inputs_give_the_same_outputs_on_every_layout_and_however_they_are_read() {
    let case = Case::new();
    let mut number = 0;
    for (dir, _) in LAYOUTS {
        for (ranks, way) in [(1, "take"), (3, "take"), (3, "locations"), (2, "shares")] {
            case.check(dir, &format!("{ranks} {way}"), &mut |program, arguments| {
                number += 1;
                let options = ["--read", way, "--block", "64KiB"];
                let arguments = [arguments, &options].concat();
                let name = format!("job{number}");
                printed(&job((&name, ranks), |_| case.command(program, &arguments)))
            });
        }
    }
}

#[test]
fn processes_that_mpirun_starts_are_a_job() {
    let case = Case::new();
    let openmpi = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3"];
    let mpich = ["mpirun.mpich", "-n", "3"];
    for launcher in [&openmpi[..], &mpich] {
        let mut version = Command::new(launcher[0]);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if !version.status().is_ok_and(|status| status.success()) {
            println!("skipped: needs {}", launcher[0]);
            continue;
        }
        case.check("striped", launcher[0], &mut |program, arguments| {
            let arguments = [&launcher[1..], &[program], arguments].concat();
            let mut mpi = case.command(launcher[0], &arguments);
            // Two that begin at a time make one directory below the usual one, and one of them fails.
            mpi.env("TMPDIR", case.cluster.path("."));
            let output = mpi.output().unwrap();
            printed(&[output])
        });
    }
}
