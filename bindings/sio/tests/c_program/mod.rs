//! Compiles the C program of `examples` with the header and the library, and runs it.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use std::path::Path;
use std::process::Command;

/// `files`: the file system to attach. `environment`: further variables for the program.
pub fn run(directory: &Path, files: &str, environment: &[(&str, &Path)]) {
    let Ok(compiler) = Command::new("cc").arg("--version").output() else {
        println!("skipped: needs a C compiler");
        return;
    };
    assert!(compiler.status.success());
    for options in [&["-O1"][..], &["-g", "-fsanitize=address"]] {
        let program = directory.join("sio_example");
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sio =
            if home.join("include").exists() { home } else { &home.join("../../bindings/sio") };
        // The directory of the library that this test is linked with.
        let test = std::env::current_exe().unwrap();
        let libraries = test.parent().unwrap();
        assert!(libraries.join("libsio.so").exists(), "no libsio.so in {libraries:?}");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]).args(options);
        cc.arg("-I").arg(sio.join("include")).arg(sio.join("examples/sio_example.c"));
        cc.arg("-L").arg(libraries).arg("-lsio").arg("-o").arg(&program);
        let said = cc.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let mut run = Command::new(&program);
        run.arg(files).env("LD_LIBRARY_PATH", libraries).envs(environment.iter().copied());
        let said = run.output().unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(said.status.success() && out == "all is well\n", "{options:?}: {out}{err}");
    }
}
