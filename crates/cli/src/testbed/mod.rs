//! `weir testbed`: machines with disks and links of a set speed, emulated on this machine. The
//! mechanisms are in the crate `weir-testbed`. This module keeps what lasts from one command to the
//! next.
//!
//! ```text
//! record     what a testbed consists of: testbed.json and derived names
//! up, down   make and remove a testbed, completely or not at all
//! disk       the daemon of a disk with a modelled head
//! status     the kernel's counters of disks and links
//! run        a command in the network of a node
//! perturb    uses a share of a disk or link;  cold: drops caches
//! ```

mod cold;
mod disk;
mod down;
mod failed;
mod perturb;
mod profiles;
mod record;
mod run;
mod status;
mod up;

use crate::args::Testbed;
use crate::failure::Done;

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
