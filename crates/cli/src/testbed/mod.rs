//! `weir testbed`: machines with disks and links of a set speed, on this one. The mechanisms are
//! those of the crate `weir-testbed`; here is what lasts from one command to the next.
//!
//! ```text
//! record     what a testbed consists of: testbed.json, and what follows from it
//! up, down   it comes and goes, whole or not at all
//! disk       the daemon of a disk with a head
//! status     the kernel's counts of disks and links
//! run        a command in the network of a node
//! perturb    takes a part of a disk or a link;  cold: nothing is left in memory
//! ```

mod cold;
mod disk;
mod down;
mod perturb;
mod profiles;
mod record;
mod run;
mod status;
mod up;

use crate::args::Testbed;
use crate::failure::{Done, Failure};

/// Runs `weir testbed`.
pub fn run(command: &Testbed) -> Done {
    match command {
        Testbed::Profiles { json } => profiles::run(*json),
        Testbed::Up(up) => up::run(up),
        Testbed::Status(status) => status::run(status),
        Testbed::Run(run) => run::run(run),
        Testbed::Perturb(perturb) => perturb::run(perturb),
        Testbed::Cold(cold) => cold::run(cold),
        Testbed::Down(choice) => down::run(choice),
        Testbed::Disk(disk) => disk::run(disk),
    }
}

/// An error of a mechanism; its text says what it is about.
fn failed(error: std::io::Error) -> Failure {
    Failure::new(error.to_string())
}
