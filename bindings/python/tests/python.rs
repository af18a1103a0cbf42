//! The Python package: client, files, processes, bad input with only Debian's packages. Also fsspec's
//! own tests for file systems, and pandas, pyarrow, dask and zarr, if they are installed
//! (`scripts/python-libraries.sh`, which `make test` runs). `make test-python` adds the examples of
//! the documents, and pytest from PyPI.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PYTHON: &str = "/usr/bin/python3";
const FILES: [&str; 6] = ["client", "bad_input", "processes", "fs", "abstract", "libraries"];

/// A file that Cargo has built, beside this test or above it.
fn built(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let here = test.parent()?;
    [here.join(name), here.parent()?.join(name)].into_iter().find(|path| path.is_file())
}

/// Installs the package as pip would.
fn install(source: &Path, module: &Path, to: &Path) {
    let package = to.join("weir");
    let about = to.join("weir-0.dist-info");
    for dir in [&package, &about] {
        std::fs::create_dir_all(dir).unwrap();
    }
    for file in ["__init__.py", "fs.py"] {
        std::fs::copy(source.join("python/weir").join(file), package.join(file)).unwrap();
    }
    std::fs::copy(module, package.join("_native.abi3.so")).unwrap();
    let metadata = "Metadata-Version: 2.1\nName: weir\nVersion: 0\n";
    std::fs::write(about.join("METADATA"), metadata).unwrap();
    let entry = "[fsspec.specs]\nweir = weir.fs:WeirFileSystem\n";
    std::fs::write(about.join("entry_points.txt"), entry).unwrap();
}

#[test]
fn the_python_package_does_what_its_tests_say() {
    let needs = "import sys, pytest; assert sys.version_info >= (3, 11)";
    let has = Command::new(PYTHON).args(["-c", needs]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        println!("skipped: needs Python 3.11 with pytest at {PYTHON} (python3-pytest)");
        return;
    }
    let Some(weir) = built("weir") else {
        println!("skipped: needs the program weir: cargo build -p weir");
        return;
    };
    let module = built("libweir_native.so").expect("the module is built with this test");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A short path, because paths of Unix sockets are limited.
    let place = tempfile::Builder::new().prefix("weir-t").tempdir_in("/tmp").unwrap();
    install(source, &module, &place.path().join("package"));
    // Beside the build directories (debug, release).
    let libraries = weir.ancestors().nth(2).unwrap().join("tools/python");
    let paths = std::env::join_paths([place.path().join("package"), libraries]).unwrap();
    let mut tests = Command::new("timeout");
    // An interrupt lets the tests stop their cluster.
    tests.args(["-s", "INT", "-k", "20", "480", PYTHON, "-m", "pytest", "-q", "-rs"]);
    tests.args(["-p", "no:cacheprovider", "--basetemp"]).arg(place.path().join("t"));
    tests.args(FILES.map(|name| source.join(format!("tests/test_{name}.py"))));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_") && name != "WEIR_LOG" {
            tests.env_remove(name);
        }
    }
    tests
        .current_dir(place.path())
        .stdin(Stdio::null())
        .env("HOME", place.path())
        .env("PYTHONPATH", paths)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("WEIR", weir);
    let said = tests.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&said.stdout));
    assert!(said.status.success(), "{}{}", text(&said.stdout), text(&said.stderr));
}
