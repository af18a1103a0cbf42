//! The C examples are compiled with the header and the library, and run on a real cluster; once
//! more with the address sanitizer.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod cluster;

use cluster::{Cluster, built, said};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLES: [&str; 9] =
    ["hello", "async", "list", "threads", "fork", "locations", "job", "hints", "bad"];
/// With the sanitizer it only spawns: GCC 12's address sanitizer does not hold its allocator's
/// locks during a fork. If other threads of the process allocate, the child can wait for such a
/// lock for ever.
const FORKS: &str = "fork";
const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The shared library of this build.
fn library() -> PathBuf {
    let file = built().join("deps/libweir.so");
    assert!(file.is_file(), "{} was not built", file.display());
    file
}

/// The first of these programs that is not installed.
fn missing<'a>(programs: &[&'a str]) -> Option<&'a str> {
    let is_there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    programs.iter().find(|name| !is_there(name)).copied()
}

/// Compiles an example.
fn compile(cluster: &Cluster, lib: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = cluster.path(&format!("{name}{}", flags.len()));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-pthread"])
        .args(flags)
        .arg("-I")
        .arg(format!("{HERE}/include"))
        .arg(format!("{HERE}/examples/{name}.c"))
        .arg("-L")
        .arg(lib)
        .args(["-lweir", "-o"])
        .arg(&program);
    said(cc.output().unwrap(), name);
    program
}

/// Installs the library as `scripts/libweir.sh` does.
fn install(cluster: &Cluster) -> PathBuf {
    let built = cluster.path("built/release");
    std::fs::create_dir_all(&built).unwrap();
    for name in ["libweir.so", "libweir.a"] {
        symlink(library().with_file_name(name), built.join(name)).unwrap();
    }
    let prefix = cluster.path("prefix");
    let mut script = Command::new(format!("{HERE}/../../scripts/libweir.sh"));
    script.env("CARGO_TARGET_DIR", cluster.path("built")).arg("").arg(&prefix);
    said(script.output().unwrap(), "libweir.sh");
    prefix
}

#[test]
fn an_installed_library_is_found_by_pkg_config() {
    if let Some(missing) = missing(&["cc", "pkg-config"]) {
        println!("skipped: needs {missing}");
        return;
    }
    let cluster = Cluster::up();
    let prefix = install(&cluster);
    let asked = |of: &[&str]| {
        let mut ask = Command::new("pkg-config");
        ask.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(of).arg("weir");
        said(ask.output().unwrap(), "pkg-config")
    };
    let shared = asked(&["--cflags", "--libs"]);
    // The same with the static library.
    let archive = prefix.join("lib/libweir.a").display().to_string();
    let fixed = asked(&["--static", "--cflags", "--libs"]).replace("-lweir", &archive);
    for flags in [shared, fixed] {
        let program = cluster.path("installed");
        let mut cc = Command::new("cc");
        cc.arg("-D_GNU_SOURCE").arg(format!("{HERE}/examples/hello.c"));
        cc.args(flags.split_whitespace()).arg("-o").arg(&program);
        said(cc.output().unwrap(), "hello");
        let mut command = Command::new(&program);
        cluster.prepare(&mut command);
        // Finds the cluster by its name in the environment.
        command.env("LD_LIBRARY_PATH", prefix.join("lib"));
        let text = said(command.output().unwrap(), "hello");
        assert!(text.ends_with("hello: ok\n"), "{text}");
    }
}

fn run_all(flags: &[&str]) {
    if let Some(missing) = missing(&["cc"]) {
        println!("skipped: needs {missing}");
        return;
    }
    let cluster = Cluster::up();
    let lib = cluster.path("lib");
    std::fs::create_dir(&lib).unwrap();
    for name in ["libweir.so", "libweir.so.0"] {
        symlink(library(), lib.join(name)).unwrap();
    }
    let foreign = cluster.path("foreign.toml");
    let text = std::fs::read_to_string(cluster.credential()).unwrap();
    let key = text.lines().find(|line| line.starts_with("key")).unwrap();
    let other = format!("key = \"{}\"", "5a".repeat(32));
    std::fs::write(&foreign, text.replace(key, &other)).unwrap();
    std::fs::set_permissions(&foreign, std::fs::Permissions::from_mode(0o600)).unwrap();
    for name in EXAMPLES {
        let mut command = Command::new(compile(&cluster, &lib, name, flags));
        cluster.prepare(&mut command);
        command.env("LD_LIBRARY_PATH", &lib).arg(cluster.credential());
        // After a fork the library keeps the parent's memory on purpose.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        if name == "bad" {
            command.arg(&foreign);
        }
        if name == FORKS && !flags.is_empty() {
            command.arg("spawn only");
        }
        let text = said(command.output().unwrap(), name);
        assert!(text.ends_with(&format!("{name}: ok\n")), "{text}");
        if name == "hello" {
            // Finds the cluster by its name as an argument.
            let mut named = Command::new(command.get_program());
            cluster.prepare(&mut named);
            named.env_remove("WEIR_CLUSTER").env("LD_LIBRARY_PATH", &lib).arg("c");
            named.env("ASAN_OPTIONS", "detect_leaks=0");
            let text = said(named.output().unwrap(), name);
            assert!(text.ends_with("hello: ok\n"), "{text}");
        }
    }
}

#[test]
fn the_examples_run_on_a_cluster() {
    run_all(&[]);
}

#[test]
fn the_examples_run_with_the_address_sanitizer() {
    run_all(&["-fsanitize=address"]);
}
