//! `weir completions` and `weir man`, generated from the definitions of the command line, so that
//! they match the program.

use crate::args::{Arguments, Completions, Man, MountHelper};
use crate::cluster::state::make_dir;
use crate::failure::{Done, Failure};
use crate::output::print;
use clap::CommandFactory;

/// Prints the completions for a shell.
pub fn completions(asked: &Completions) -> Done {
    // Generated in memory first: generating into a closed pipe would panic.
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, &mut Arguments::command(), "weir", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes the manual pages.
pub fn pages(asked: &Man) -> Done {
    let commands = asked.dir.join("man1");
    make_dir(&commands, 0o755)?;
    clap_mangen::generate_to(Arguments::command(), &commands)
        .map_err(|e| Failure::file(&commands, e))?;
    let administration = asked.dir.join("man8");
    make_dir(&administration, 0o755)?;
    clap_mangen::Man::new(MountHelper::command())
        .section("8")
        .generate_to(&administration)
        .map(drop)
        .map_err(|e| Failure::file(&administration, e))
}
