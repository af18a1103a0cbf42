//! The Debian packages: that of the program is made, installed, used and removed in a copy of this
//! machine; with those of the library a program in C is compiled and run.

use crate::harness::{Place, WEIR, root, said};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

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

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Makes the packages of what was built in `out`; says what is missing, if something is.
fn make(place: &Place, libraries: &[&str]) -> bool {
    let tools = Path::new(WEIR).ancestors().nth(2).unwrap().join("tools");
    if !tools.join("cargo-deb").exists() {
        eprintln!("skipped: needs cargo-deb (scripts/cargo-deb.sh builds it)");
        return false;
    }
    // Whatever the profile of this program is: of the release a package is made.
    fs::create_dir_all(place.path("target/release")).unwrap();
    fs::copy(WEIR, place.path("target/release/weir")).unwrap();
    symlink(tools, place.path("target/tools")).unwrap();
    for library in libraries {
        symlink(built(library).unwrap(), place.path("target/release").join(library)).unwrap();
    }
    let mut make = Command::new(Path::new(SOURCES).join("scripts/deb.sh"));
    place.prepare(&mut make);
    // Fast; that it is small is not for a test. Cargo has its things at home.
    make.args(["out", "--fast"]);
    make.env("CARGO_TARGET_DIR", place.path("target"));
    make.env("HOME", std::env::var_os("HOME").unwrap());
    let made = said(make);
    assert!(made.err.is_empty(), "{}", made.err);
    made.ok();
    true
}

/// A file that was built with this test.
fn built(name: &str) -> Option<PathBuf> {
    let file = std::env::current_exe().unwrap().with_file_name(name);
    file.is_file().then_some(file)
}

/// The package of this name.
fn package(place: &Place, name: &str) -> PathBuf {
    let begin = format!("{name}_");
    let all = place.path("out").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&begin);
    all.into_iter().find(is_it).unwrap_or_else(|| panic!("no package {name}"))
}

#[test]
fn with_the_packages_of_the_library_a_program_in_c_is_compiled_and_runs() {
    let needed = ["dpkg-shlibdeps", "dpkg-deb", "cc", "pkg-config"];
    if let Some(missing) = needed.into_iter().find(|program| !is_there(program)) {
        eprintln!("skipped: needs {missing}");
        return;
    }
    if built("libweir.so").is_none() {
        eprintln!("skipped: needs libweir.so, which is built with all programs of tests");
        return;
    }
    let place = Place::new();
    if !make(&place, &["libweir.so", "libweir.a"]) {
        return;
    }
    let tree = place.path("tree");
    let dpkg = |what: &str, name: &str| {
        let mut dpkg = Command::new("dpkg-deb");
        dpkg.arg(what).arg(package(&place, name));
        if what == "-x" {
            dpkg.arg(&tree);
        }
        said(dpkg).ok()
    };
    let files = |name| -> Vec<String> {
        let lines = dpkg("-c", name);
        let path = |line: &str| line.split(" ./").nth(1).map(String::from);
        lines.lines().filter_map(path).filter(|path| !path.ends_with('/')).collect()
    };
    let has = |files: &[String], wanted: &[&str]| {
        for path in wanted {
            let is_it = |file: &&String| file.split(" -> ").next() == Some(path);
            assert!(files.iter().any(|file| is_it(&file)), "no {path} in {files:?}");
        }
    };
    let real = concat!("usr/lib/libweir.so.", env!("CARGO_PKG_VERSION"));
    let runs = files("libweir0");
    has(&runs, &[real, "usr/lib/libweir.so.0", "usr/share/doc/libweir0/copyright"]);
    assert!(!runs.iter().any(|path| path.ends_with(".h") || path.ends_with(".a")), "{runs:?}");
    let dev = files("libweir-dev");
    has(&dev, &["usr/include/weir.h", "usr/lib/libweir.a", "usr/lib/pkgconfig/weir.pc"]);
    has(&dev, &["usr/share/man/man3/libweir.3.gz", "usr/share/doc/libweir-dev/examples/hello.c"]);
    assert!(dev.iter().any(|path| path.starts_with("usr/lib/libweir.so ->")), "{dev:?}");
    assert!(!dev.contains(&real.to_string()), "{dev:?}");
    let depends = dpkg("-f", "libweir-dev");
    assert!(depends.contains(concat!("libweir0 (= ", env!("CARGO_PKG_VERSION"), ")")), "{depends}");
    dpkg("-x", "libweir0");
    dpkg("-x", "libweir-dev");

    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs", "weir"]);
    ask.env("PKG_CONFIG_LIBDIR", tree.join("usr/lib/pkgconfig"));
    ask.env("PKG_CONFIG_SYSROOT_DIR", &tree).env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1");
    ask.env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
    let flags = said(ask).ok();
    let program = place.path("hello");
    let mut cc = Command::new("cc");
    cc.arg("-D_GNU_SOURCE").arg(tree.join("usr/share/doc/libweir-dev/examples/hello.c"));
    cc.args(flags.split_whitespace()).arg("-o").arg(&program);
    said(cc).ok();
    let cluster = place.up("deb", &[]);
    let mut hello = Command::new(&program);
    place.prepare(&mut hello);
    hello.arg(cluster.dir().join("client.toml"));
    hello.env("LD_LIBRARY_PATH", tree.join("usr/lib"));
    let text = said(hello).ok();
    assert!(text.ends_with("hello: ok\n"), "{text}");
}

#[test]
fn a_package_is_installed_works_and_leaves_nothing() {
    if !root() || !is_there("dpkg-shlibdeps") || !is_there("systemctl") {
        eprintln!("skipped: needs root, dpkg-dev and systemctl");
        return;
    }
    let place = Place::new();
    if !make(&place, &[]) {
        return;
    }
    let package = package(&place, "weir");
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
