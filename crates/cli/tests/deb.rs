//! The Debian package: made, installed, used and removed, in a copy of this machine.

use crate::harness::{Place, WEIR, root, said};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Runs in a mount namespace of its own, where all that is written to this machine's files goes
/// to memory. What is given to it is the package.
const IN_A_COPY: &str = r#"
mkdir copy
mount -t tmpfs none copy
mkdir copy/new copy/work copy/root
mount -t overlay -o lowerdir=/,upperdir=copy/new,workdir=copy/work none copy/root
mount -t proc none copy/root/proc
mount -t devtmpfs none copy/root/dev
exec chroot copy/root sh -ec "$USE" sh "$PWD/$1"
"#;

const USE: &str = r#"
ours() { find /etc /usr /var -xdev -name '*weir*' ! -path '/var/lib/dpkg/*' ! -path '/var/lib/weir*' | sort; }
before=$(ours)
dpkg -i "$1" > /dev/null
echo "[version] $(/usr/bin/weir --version)"
! dpkg --verify weir | grep -v ' /usr/share/'
/sbin/mount.fuse.weir -fv weir:/etc/weir/client.toml /mnt 2>&1
dpkg -L weir | grep '/man./'
dpkg -L weir | grep grafana/
bash -ec 'source /usr/share/bash-completion/completions/weir; complete -p weir'

test -d /etc/weir
dpkg -r weir > /dev/null
! test -e /etc/weir
dpkg -i "$1" > /dev/null

# As an administrator leaves it: a service enabled, a key in /etc/weir.
systemctl --quiet enable weir-data@7.service
readlink /etc/systemd/system/multi-user.target.wants/weir-data@7.service
dpkg -i "$1" > /dev/null
test -L /etc/systemd/system/multi-user.target.wants/weir-data@7.service
echo secret > /etc/weir/client.toml
dpkg -r weir > /dev/null
dpkg -P weir > /dev/null
echo "[key] $(cat /etc/weir/client.toml)"
rm -r /etc/weir
test "$before" = "$(ours)" || { ours; exit 1; }
! dpkg -s weir > /dev/null 2>&1
echo "[gone]"
"#;

#[test]
fn a_package_is_installed_works_and_leaves_nothing() {
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !root() || !is_there("dpkg-shlibdeps") || !is_there("systemctl") {
        eprintln!("skipped: needs root, dpkg-dev and systemctl");
        return;
    }
    let tools = Path::new(WEIR).ancestors().nth(2).unwrap().join("tools");
    if !tools.join("cargo-deb").exists() {
        eprintln!("skipped: needs cargo-deb (scripts/cargo-deb.sh builds it)");
        return;
    }
    let place = Place::new();
    // Whatever the profile of this program is: of the release a package is made.
    fs::create_dir_all(place.path("target/release")).unwrap();
    fs::copy(WEIR, place.path("target/release/weir")).unwrap();
    symlink(tools, place.path("target/tools")).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut make = Command::new(sources.join("scripts/deb.sh"));
    place.prepare(&mut make);
    // Fast; that it is small is not for a test. Cargo has its things at home.
    make.args(["out", "--fast"]);
    make.env("CARGO_TARGET_DIR", place.path("target"));
    make.env("HOME", std::env::var_os("HOME").unwrap());
    let made = said(make);
    assert!(made.err.is_empty(), "{}", made.err);
    made.ok();
    let package = place.path("out").read_dir().unwrap().next().unwrap().unwrap().path();
    let package = package.strip_prefix(place.path("")).unwrap();

    let mut copy = Command::new("unshare");
    copy.args(["-m", "bash", "-ec", IN_A_COPY, "bash"]).arg(package).env("USE", USE);
    place.prepare(&mut copy);
    let shown = said(copy).ok();
    for words in [
        concat!("[version] weir ", env!("CARGO_PKG_VERSION"), " (protocol"),
        "mount.fuse.weir: weir:/etc/weir/client.toml on /mnt",
        "/usr/share/man/man1/weir-target-replace.1.gz",
        "/usr/share/man/man8/mount.fuse.weir.8.gz",
        "/usr/share/weir/grafana/weir.json",
        "-F _weir weir",
        "/lib/systemd/system/weir-data@.service",
        "[key] secret",
        "[gone]",
    ] {
        assert!(shown.contains(words), "no {words:?} in: {shown}");
    }
}
