//! Common operations on trees of small files with the usual programs: through the mount, as root
//! and as an ordinary user, and on the local disk (`weir-bench names`). Besides the time it shows
//! CPU time and the number of messages for each file, which do not depend on other load of the
//! machine.

use crate::accounting::{Accounting, Group, Snapshot};
use crate::args::Trees;
use crate::cluster::Cluster;
use crate::failure::{Done, Failure};
use crate::pieces::median;
use crate::stop;
use crate::ways::USER;
use rustix::fs::{Gid, Uid, chown};
use rustix::process::geteuid;
use serde::Serialize;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const TARGETS: usize = 4;
const FILE_BYTES: usize = 4096;
/// Directories on each of the three levels of the tree.
const WIDTHS: [u32; 3] = [10, 2, 2];

/// The user and the place of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Disk,
    Mount,
    MountUser,
}

const WAYS: [Way; 3] = [Way::Disk, Way::Mount, Way::MountUser];

/// An operation as a script. `$1` is the tree on the local disk; the working directory is where it
/// runs.
struct Step {
    name: &'static str,
    script: &'static str,
    /// The program that it needs, besides those of every system.
    needs: Option<&'static str>,
    /// Whether the kernel drops cached names and attributes before, if possible.
    forgets: bool,
}

const fn step(name: &'static str, script: &'static str) -> Step {
    Step { name, script, needs: None, forgets: false }
}

static STEPS: [Step; 13] = [
    step("cp -r", r#"cp -r "$1" a"#),
    step("ls -lR", "ls -lR a"),
    step("ls -lR, again", "ls -lR a"),
    Step { forgets: true, ..step("ls -lR, kernel forgot", "ls -lR a") },
    step("find -newermt", "find a -type f -newermt 2000-01-01"),
    step("grep -r", "grep -rc xyzzy a || [ $? = 1 ]"),
    step("grep -r, again", "grep -rc xyzzy a || [ $? = 1 ]"),
    step("tar c", "tar c a | cat"),
    step("tar x", r#"mkdir b && tar c -C "$1" . | tar x -C b"#),
    Step { needs: Some("git"), ..step("git init, add", "cd b && git init -q . && git add -A") },
    Step { needs: Some("git"), ..step("git commit", "cd b && git commit -qm x") },
    Step { needs: Some("git"), ..step("git status", "cd b && git status --porcelain") },
    step("rm -rf", "rm -rf a b"),
];

/// The result of one step: medians over the rounds.
#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    way: &'static str,
    seconds: f64,
    /// CPU seconds of the programs, of the mount, and of all servers.
    programs_cpu_s: f64,
    mount_cpu_s: f64,
    servers_cpu_s: f64,
    /// Requests of the kernel, and messages to the metadata server and to data servers, for each
    /// file of the tree.
    kernel_requests: f64,
    meta_messages: f64,
    data_messages: f64,
}

/// One run of one step.
struct Run {
    seconds: f64,
    cpu_s: [f64; 3],
    messages: Messages,
}

/// Counters of the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Messages {
    kernel: f64,
    meta: f64,
    data: f64,
}

struct Bench<'a> {
    accounting: &'a Accounting,
    cluster: &'a Cluster,
    source: PathBuf,
    local: PathBuf,
    files: u32,
}

/// Measures all steps with alternating ways, and prints a table.
pub fn run(arguments: &Trees, weir: &Path, dir: &Path) -> Done {
    let place = tempfile::Builder::new()
        .prefix("weir-bench-")
        .tempdir_in(dir)
        .map_err(|e| Failure::file(dir, e))?;
    // The ordinary user works there as well.
    chmod(place.path(), 0o755)?;
    let mut accounting = Accounting::new();
    let mut cluster = Cluster::start(weir, place.path(), TARGETS, &mut accounting)?;
    cluster.mount_counting(&mut accounting)?;
    let source = place.path().join("source");
    make_tree(&source, arguments.files)?;
    let local = place.path().join("local");
    make_dir(&local)?;
    let bench =
        Bench { accounting: &accounting, cluster: &cluster, source, local, files: arguments.files };
    let lines = bench.rounds(arguments.rounds)?;
    print!("{}", text(&lines, arguments.files));
    let Some(path) = &arguments.json else { return Ok(()) };
    let json = serde_json::json!({ "files": arguments.files, "trees": lines });
    fs::write(path, format!("{json:#}\n")).map_err(|e| Failure::file(path, e))
}

fn text(lines: &[Line], files: u32) -> String {
    let mut out = format!(
        "\n{files} files of {FILE_BYTES} bytes; CPU seconds of programs, mount and servers; requests of the \
         kernel, and messages to the\nmetadata server and to data servers, for each file\n{:22} {:12} {:>8} \
         {:>9} {:>7} {:>8} {:>8} {:>6} {:>6}\n",
        "what", "where", "seconds", "programs", "mount", "servers", "requests", "meta", "data"
    );
    for line in lines {
        out += &format!(
            "{:22} {:12} {:>8.2} {:>9.2} {:>7.2} {:>8.2} {:>8.2} {:>6.2} {:>6.2}\n",
            line.what,
            line.way,
            line.seconds,
            line.programs_cpu_s,
            line.mount_cpu_s,
            line.servers_cpu_s,
            line.kernel_requests,
            line.meta_messages,
            line.data_messages
        );
    }
    out
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Disk => "local disk",
            Self::Mount => "mount",
            Self::MountUser => "mount, user",
        }
    }
}

impl Bench<'_> {
    fn rounds(&self, rounds: u32) -> Done<Vec<Line>> {
        let is_root = geteuid().is_root();
        let ways: Vec<Way> =
            WAYS.into_iter().filter(|way| is_root || *way != Way::MountUser).collect();
        let steps: Vec<&Step> =
            STEPS.iter().filter(|step| step.needs.is_none_or(is_there)).collect();
        let mut all: Vec<Vec<Vec<Run>>> = Vec::new();
        all.resize_with(steps.len(), || ways.iter().map(|_| Vec::new()).collect());
        for round in 0..rounds {
            for (at, way) in ways.iter().enumerate() {
                let dir = self.dir(*way, round)?;
                for (step, runs) in steps.iter().zip(&mut all) {
                    runs[at].push(self.run(*way, step, &dir)?);
                }
                fs::remove_dir_all(&dir).map_err(|e| Failure::file(&dir, e))?;
            }
        }
        let line = |step: &Step, way: Way, runs: &[Run]| {
            let files = f64::from(self.files);
            let of_file = |of: fn(&Messages) -> f64| median(runs, |run| of(&run.messages)) / files;
            Line {
                what: step.name,
                way: way.name(),
                seconds: median(runs, |run| run.seconds),
                programs_cpu_s: median(runs, |run| run.cpu_s[0]),
                mount_cpu_s: median(runs, |run| run.cpu_s[1]),
                servers_cpu_s: median(runs, |run| run.cpu_s[2]),
                kernel_requests: of_file(|messages| messages.kernel),
                meta_messages: of_file(|messages| messages.meta),
                data_messages: of_file(|messages| messages.data),
            }
        };
        let mut lines = Vec::new();
        for (step, of_step) in steps.iter().zip(&all) {
            lines.extend(ways.iter().zip(of_step).map(|(way, runs)| line(step, *way, runs)));
        }
        Ok(lines)
    }

    /// A new directory of the user of this way.
    fn dir(&self, way: Way, round: u32) -> Done<PathBuf> {
        let root = if way == Way::Disk { &self.local } else { self.cluster.mountpoint() };
        let dir = root.join(format!("{way:?}-{round}"));
        make_dir(&dir)?;
        if way == Way::MountUser {
            let owner = (Some(Uid::from_raw(USER)), Some(Gid::from_raw(USER)));
            chown(&dir, owner.0, owner.1).map_err(|e| Failure::file(&dir, e))?;
        }
        Ok(dir)
    }

    fn run(&self, way: Way, step: &Step, dir: &Path) -> Done<Run> {
        stop::check()?;
        if step.forgets && geteuid().is_root() {
            let path = Path::new("/proc/sys/vm/drop_caches");
            fs::write(path, "2").map_err(|e| Failure::file(path, e))?;
        }
        let mut command = self.command(way)?;
        command.args(["sh", "-c", step.script, "sh"]).arg(&self.source).current_dir(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let messages = self.messages(way)?;
        let (cpu, begin) = (self.accounting.snapshot(), Instant::now());
        let status = command.status().map_err(|e| Failure::system(step.name, e))?;
        let seconds = begin.elapsed().as_secs_f64();
        let cpu_s = spent(&cpu, &self.accounting.snapshot());
        if !status.success() {
            return Err(Failure::other(format!("{} in {}: {status}", step.name, dir.display())));
        }
        let messages = self.messages(way)?.since(messages);
        Ok(Run { seconds, cpu_s, messages })
    }

    /// A command that runs other commands as the user of this way.
    fn command(&self, way: Way) -> Done<Command> {
        let mut command = self.accounting.command(Group::Posix, Path::new("/usr/bin/env"))?;
        // Without personal settings, whoever measures.
        command.args(["-i", "PATH=/usr/bin:/bin", "LC_ALL=C", "GIT_CONFIG_GLOBAL=/dev/null"]);
        command.args(["GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a"]);
        command.args(["GIT_COMMITTER_EMAIL=a@b", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=gc.auto"]);
        command.arg("GIT_CONFIG_VALUE_0=0");
        if way == Way::MountUser {
            command.arg("setpriv").arg(format!("--reuid={USER}")).arg(format!("--regid={USER}"));
            command.args(["--clear-groups", "--"]);
        }
        Ok(command)
    }

    fn messages(&self, way: Way) -> Done<Messages> {
        match way {
            Way::Disk => Ok(Messages::default()),
            Way::Mount | Way::MountUser => Ok(Messages::of(&self.cluster.metrics_of_mount()?)),
        }
    }
}

impl Messages {
    /// The counters on a metrics page.
    fn of(page: &str) -> Self {
        let sum = |name: &str| -> f64 {
            let lines = page.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
        };
        Self {
            kernel: sum("weir_mount_operation_duration_seconds_count"),
            meta: sum("weir_client_requests_total{server=\"meta\"}"),
            data: sum("weir_client_requests_total{server=\"data\"}"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            kernel: self.kernel - before.kernel,
            meta: self.meta - before.meta,
            data: self.data - before.data,
        }
    }
}

/// CPU seconds of the programs, of the mount, and of all servers.
fn spent(before: &Snapshot, after: &Snapshot) -> [f64; 3] {
    let of = |group: Group| {
        let at = |snapshot: &Snapshot| snapshot.get(&group).copied().unwrap_or(0.0);
        at(after) - at(before)
    };
    [of(Group::Posix), of(Group::Mount), of(Group::Meta) + of(Group::Data)]
}

fn is_there(program: &str) -> bool {
    ["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).is_file())
}

fn make_tree(root: &Path, files: u32) -> Done {
    let mut made = std::collections::BTreeSet::new();
    for number in 0..files {
        let [one, two, three] = WIDTHS;
        let (i, j, k) = (number % one, number / one % two, number / one / two % three);
        let dir = root.join(format!("d{i}/e{j}/g{k}"));
        if made.insert(dir.clone()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(&dir)
                .map_err(|e| Failure::file(&dir, e))?;
        }
        let path = dir.join(format!("f{number}.txt"));
        let line = format!("line {number} of a file that grep reads\n");
        let text: Vec<u8> = line.bytes().cycle().take(FILE_BYTES).collect();
        fs::write(&path, text).map_err(|e| Failure::file(&path, e))?;
    }
    Ok(())
}

fn make_dir(dir: &Path) -> Done {
    fs::create_dir(dir).map_err(|e| Failure::file(dir, e))?;
    chmod(dir, 0o755)
}

fn chmod(path: &Path, mode: u32) -> Done {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|e| Failure::file(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_from_a_page_of_metrics() {
        let page = "weir_mount_operation_duration_seconds_count{op=\"lookup\"} 3\n\
                    weir_mount_operation_duration_seconds_count{op=\"open\"} 4\n\
                    weir_mount_operation_duration_seconds_sum{op=\"open\"} 0.5\n\
                    weir_client_requests_total{server=\"data\"} 5\n\
                    weir_client_requests_total{server=\"meta\"} 6\n";
        let messages = Messages::of(page);
        assert_eq!(messages, Messages { kernel: 7.0, meta: 6.0, data: 5.0 });
        assert_eq!(messages.since(messages), Messages::default());
    }
}
