//! `weir testbed down`: all of a testbed goes, also if some of it has gone already.

use super::failed;
use super::record::{Place, Record, head_name};
use crate::args::TestbedChoice;
use crate::cluster::down::stop;
use crate::cluster::process::Process;
use crate::failure::{Done, Failure, Failures};
use crate::output::print;
use weir_testbed::{Disk, Network, Throttle, detach};

/// Runs `weir testbed down`.
pub fn run(choice: &TestbedChoice) -> Done {
    let place = Place::of(choice)?;
    let record = place.required()?;
    let _lock = place.files().lock()?;
    remove(&place, &record)?;
    print(&format!("Testbed {} is down, and nothing of it is left.\n", record.profile))
}

/// Takes away whatever is there. Everything is tried; what stays is named, and known until
/// another try.
pub fn remove(place: &Place, record: &Record) -> Done {
    let mut failures = Failures::default();
    let cluster = place.cluster();
    if cluster.exists() {
        failures.keep(cluster.description().and_then(|it| stop(&cluster, &it, true)));
    }
    Throttle::remove(&place.name());
    for (number, node) in record.numbered() {
        // First who uses it, then what it is on: nothing waits for what has gone.
        let (backing, at) = (place.backing(number, node.drive), place.disk(number));
        failures.keep(Disk::remove(&backing, &at).map_err(failed));
        if node.drive.is_some() {
            failures.keep(end_head(place, number));
        }
    }
    failures.keep(Network::remove(&place.name()).map_err(failed));
    failures.end()?;
    std::fs::remove_dir_all(place.dir()).map_err(|e| Failure::file(place.dir(), e))
}

/// Its daemon ends by itself when the file that it serves is unmounted, and nobody uses it.
fn end_head(place: &Place, number: u32) -> Done {
    detach(&Disk::model_at(&place.disk(number))).map_err(failed)?;
    let daemon = Process::from_file(&place.files().pid_file(&head_name(number)));
    daemon.map_or(Ok(()), |daemon| daemon.stop(false).map(drop))
}
