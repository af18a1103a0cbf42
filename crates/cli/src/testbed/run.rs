//! `weir testbed run`: runs a command in the network of a node.

use super::record::Place;
use crate::args::TestbedRun;
use crate::failure::{Done, Failure};
use std::os::unix::process::CommandExt;

/// Runs the command in place of this process.
pub fn run(run: &TestbedRun) -> Done {
    let place = Place::of(&run.choice)?;
    let record = place.required()?;
    record.require(run.node)?;
    let Some((program, arguments)) = run.command.split_first() else {
        return Err(Failure::new("no command"));
    };
    let mut command = record.network(&place).command(run.node, program);
    command.args(arguments);
    // There, `weir` uses this cluster and this testbed.
    command.env("WEIR_DIR", place.cluster().dir()).env("WEIR_TESTBED", place.dir());
    ["WEIR_CREDENTIAL", "WEIR_CLUSTER"].iter().for_each(|name| _ = command.env_remove(name));
    Err(Failure::new(format!("cannot run nsenter: {}", command.exec())).code(127))
}
