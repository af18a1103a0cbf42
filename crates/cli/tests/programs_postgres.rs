//! PostgreSQL on a mount: pgbench, a crash of all its processes, recovery. What
//! it had told a client is committed is there, its books balance, and its own
//! checks of tables and indexes (with page checksums) find nothing.

use crate::harness::{Place, Said, eventually, root, said};
use crate::mounted::Mounts;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where Debian keeps the programs of the server, if it is installed.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|v| v.path().join("bin")).filter(|b| b.join("postgres").exists()).collect();
    found.sort();
    found.pop()
}

/// The user that the package makes; the server refuses to run as root.
fn user() -> Option<(u32, u32)> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|l| l.starts_with("postgres:"))?;
    let mut words = line.split(':').skip(2);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

struct Postgres {
    programs: PathBuf,
    user: (u32, u32),
    data: PathBuf,
    /// Of the local disk: the socket and the logs.
    local: PathBuf,
    server: Option<Child>,
}

impl Postgres {
    /// Makes an empty database cluster in `data`.
    fn new(data: PathBuf, local: PathBuf) -> Option<Self> {
        let (Some(programs), Some(user)) = (programs(), user()) else {
            println!("skipped: needs the package postgresql (scripts/deps.sh installs it)");
            return None;
        };
        for dir in [&data, &local] {
            fs::create_dir(dir).unwrap();
            chown(dir, Some(user.0), Some(user.1)).unwrap();
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let postgres = Self { programs, user, data, local, server: None };
        let data = postgres.data.to_str().unwrap();
        postgres.run("initdb", &["-D", data, "-k", "-A", "trust", "-E", "UTF8", "--locale=C"]).ok();
        Some(postgres)
    }

    /// One of its programs, as its user.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args([format!("--reuid={}", self.user.0), format!("--regid={}", self.user.1)])
            .arg("--clear-groups")
            .arg(self.programs.join(program))
            .args(arguments)
            .current_dir("/")
            .env("PGHOST", &self.local)
            .env("PGDATABASE", "postgres")
            .env("PGUSER", "postgres")
            .env("HOME", &self.local)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Said {
        said(self.command(program, arguments))
    }

    fn sql(&self, text: &str) -> String {
        self.run("psql", &["-qAtX", "-v", "ON_ERROR_STOP=1", "-c", text]).ok()
    }

    fn start(&mut self) {
        let local = self.local.to_str().unwrap();
        let settings = ["listen_addresses=", "shared_buffers=16MB", "fsync=on"];
        let settings = settings.iter().flat_map(|s| ["-c", s]);
        let mut arguments = vec!["-D", self.data.to_str().unwrap(), "-k", local];
        arguments.extend(settings);
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log()).unwrap();
        let mut command = self.command("postgres", &arguments);
        command.stdout(Stdio::null()).stderr(log);
        self.server = Some(command.spawn().unwrap());
        eventually("PostgreSQL answers", || {
            let ended = self.server.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{}", fs::read_to_string(self.log()).unwrap());
            self.run("pg_isready", &["-q"]).code == Some(0)
        });
    }

    fn log(&self) -> PathBuf {
        self.local.join("server.log")
    }

    /// SIGKILL to all its processes at once; none has a last word.
    fn crash(&mut self) {
        let mut server = self.server.take().unwrap();
        let all = [vec![server.id()], children(server.id())].concat();
        for pid in &all {
            let _ = Command::new("kill").arg("-9").arg(pid.to_string()).status();
        }
        server.wait().unwrap();
        eventually("its processes are gone", || all.iter().all(|pid| !is_postgres(*pid)));
    }

    /// Stops it in good order.
    fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = Command::new("kill").args(["-INT", &server.id().to_string()]).status();
            server.wait().unwrap();
        }
    }

    /// `pgbench` with two clients; a line of its log in `prefix.*` for each
    /// transaction that was committed.
    fn bench(&self, prefix: &Path, seconds: &str) -> Child {
        let prefix = format!("--log-prefix={}", prefix.display());
        let mut command = self.command("pgbench", &["-n", "-c", "2", "-T", seconds, "-l", &prefix]);
        let output = fs::File::create(self.local.join("pgbench.log")).unwrap();
        command.stdout(Stdio::null()).stderr(output).spawn().unwrap()
    }

    /// The four tables of pgbench tell the same story; every committed
    /// transaction is in it.
    fn check(&self, committed: u64) {
        let sums = self.sql(
            "select (select sum(abalance) from pgbench_accounts) =
                    (select sum(delta) from pgbench_history),
                    (select sum(tbalance) from pgbench_tellers) =
                    (select sum(delta) from pgbench_history),
                    (select sum(bbalance) from pgbench_branches) =
                    (select sum(delta) from pgbench_history)",
        );
        assert_eq!(sums.trim(), "t|t|t");
        let kept: u64 = self.sql("select count(*) from pgbench_history").trim().parse().unwrap();
        assert!(kept >= committed, "{committed} transactions were committed, {kept} are left");
        self.run("pg_amcheck", &["--install-missing", "--heapallindexed", "-d", "postgres"]).ok();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            for pid in [children(server.id()), vec![server.id()]].concat() {
                let _ = Command::new("kill").arg("-9").arg(pid.to_string()).status();
            }
            let _ = server.wait();
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

fn is_postgres(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("postgres"))
}

/// Lines of all logs of pgbench in a directory.
fn committed(dir: &Path) -> u64 {
    let logs = fs::read_dir(dir)
        .unwrap()
        .flatten()
        .filter(|f| f.file_name().to_string_lossy().starts_with("transactions"));
    logs.map(|f| fs::read_to_string(f.path()).unwrap().lines().count() as u64).sum()
}

#[test]
fn what_postgresql_has_committed_survives_its_crash() {
    if !root() {
        return;
    }
    let place = Place::new();
    // Its user has to get through.
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    let mounts = Mounts::new(&place, "postgres", 1);
    let local = place.path("local");
    let Some(mut postgres) = Postgres::new(mounts.at[0].join("data"), local.clone()) else {
        return;
    };
    postgres.start();
    postgres.run("pgbench", &["-i", "-q", "-s", "1"]).ok();
    let mut bench = postgres.bench(&local.join("transactions1"), "60");
    eventually("some transactions are committed", || {
        postgres.sql("select count(*) from pgbench_history").trim().parse::<u64>().unwrap() > 20
    });
    postgres.crash();
    assert!(!bench.wait().unwrap().success(), "pgbench notices that its server is gone");
    // One of each of the two clients may not have been told.
    let before = committed(&local);
    assert!(before > 18, "only {before} transactions were told to be committed");
    postgres.start();
    let log = fs::read_to_string(postgres.log()).unwrap();
    assert!(log.contains("database system was not properly shut down"), "{log}");
    postgres.check(before);

    // And goes on; a data server of Weir dies under it and comes back.
    let mut bench = postgres.bench(&local.join("transactions2"), "4");
    std::thread::sleep(Duration::from_secs(1));
    mounts.cluster.kill("data-2");
    place.weir(&["up", "--name", "postgres"]).ok();
    let status = bench.wait().unwrap();
    assert!(status.success(), "{}", fs::read_to_string(local.join("pgbench.log")).unwrap());
    let after = committed(&local);
    assert!(after > before);
    postgres.check(after);
    postgres.stop();
    // From the servers, not from what the kernel still has.
    let at = mounts.at[0].to_str().unwrap();
    mounts.cluster.weir(&["umount", at]).ok();
    mounts.cluster.weir(&["mount", at]).ok();
    postgres.start();
    postgres.check(after);
    postgres.stop();
}
