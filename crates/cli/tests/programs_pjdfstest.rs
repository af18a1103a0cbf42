//! pjdfstest on a mount: what POSIX says that calls on files do, and which errors they give, for
//! the superuser and for others, call by call.

use crate::harness::{Place, Said, WEIR, root, said};
use crate::mounted::Mounts;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a Linux file system may have besides, and Weir has; two users that Debian has. It is
/// remounted for what may not be done where nothing can be written.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = true
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// What may be skipped: the limit of hard links, which glibc does not know of such a mount.
const MAY_SKIP: [&str; 1] = ["link::link_count_max"];

/// In a mount namespace of its own: there mount(8) finds the helper, and another file system is at
/// `$OTHER`, so that neither is seen by this machine.
const SCRIPT: &str = "mount -t tmpfs none /run; mount -t tmpfs none /sbin; \
    ln -s \"$WEIR\" /sbin/mount.fuse.weir; mount -t tmpfs none \"$OTHER\"; \
    exec timeout -k 10 200 \"$@\"";

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
    let other = place.path("other");
    std::fs::create_dir(&other).unwrap();
    // Those that remount come first, and alone: of the others some keep files open to be written as
    // long as the program runs, and with those nothing can be remounted, ext4 neither.
    let run = |more: &[&str]| {
        let mut tests = Command::new("unshare");
        tests.args(["-m", "sh", "-ec", SCRIPT, "sh"]).arg(&program).arg("-c").arg(&configuration);
        tests.arg("-p").arg(&mounts.at[0]).arg("--secondary-fs").arg(&other).args(more);
        tests.env("WEIR", WEIR).env("OTHER", &other);
        place.prepare(&mut tests);
        said(tests)
    };
    passes(&run(&["erofs"]), |_| false);
    let without = CONFIGURATION.replace("allow_remount = true", "allow_remount = false");
    std::fs::write(&configuration, without).unwrap();
    passes(&run(&[]), |name| MAY_SKIP.contains(&name) || name.contains("::erofs_"));
}

/// Nothing failed, and nothing was skipped that may not be.
fn passes(said: &Said, may_skip: impl Fn(&str) -> bool) {
    let lines = || said.out.lines();
    let failed: Vec<&str> = lines().filter(|line| line.contains("FAILED")).collect();
    let summary = lines().find(|line| line.starts_with("Summary: ")).unwrap_or_default();
    assert!(
        said.code == Some(0) && failed.is_empty(),
        "{summary}\n{}\n{}",
        failed.join("\n"),
        said.err
    );
    let skipped = lines().filter_map(|line| line.strip_suffix(" skipped"));
    let unknown: Vec<&str> = skipped.map(str::trim).filter(|name| !may_skip(name)).collect();
    assert!(unknown.is_empty(), "skipped: {unknown:?}");
    println!("{summary}");
}
