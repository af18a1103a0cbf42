//! pjdfstest on a mount: what POSIX says that calls on files do, and which errors they give, for
//! the superuser and for others, call by call.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod harness;
mod mounted;

use harness::{Place, WEIR, root, said};
use mounted::Mounts;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a Linux file system may have besides, and Weir has; two users that Debian has. Nothing is
/// remounted as read-only: Weir wants to be mounted anew for that, as `flags.rs` does.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Where `make test` puts it, beside the profile's directory that the program is in; or installed.
fn program() -> Option<PathBuf> {
    let made = Path::new(WEIR).ancestors().nth(2)?.join("tools/pjdfstest");
    [made, "pjdfstest".into()]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_ok())
}

#[test]
fn calls_do_what_posix_says_for_root_and_for_others() {
    if !root() {
        return;
    }
    let Some(program) = program() else {
        println!("skipped: needs pjdfstest (scripts/pjdfstest.sh builds it)");
        return;
    };
    let place = Place::new();
    // Other users have to come to the mount.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(""), open).unwrap();
    let mounts = Mounts::new(&place, "pjdfstest", 1);
    let configuration = place.path("pjdfstest.toml");
    std::fs::write(&configuration, CONFIGURATION).unwrap();
    let mut tests = Command::new("timeout");
    tests.args(["-k", "10", "200"]).arg(program).arg("-c").arg(&configuration);
    tests.arg("-p").arg(&mounts.at[0]).current_dir("/");
    let said = said(tests);
    let lines = || said.out.lines();
    let failed: Vec<&str> = lines().filter(|line| line.contains("FAILED")).collect();
    let summary = lines().find(|line| line.starts_with("Summary: ")).unwrap_or_default();
    assert!(
        said.code == Some(0) && failed.is_empty(),
        "{summary}\n{}\n{}",
        failed.join("\n"),
        said.err
    );
    println!("{summary}");
}
