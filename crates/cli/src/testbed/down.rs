//! `weir testbed down`: removes a testbed completely, even if parts of it are gone already.

use super::failed::failed;
use super::record::{Place, Record, head_name};
use crate::args::TestbedChoice;
use crate::cluster::down::stop;
use crate::cluster::process::Process;
use crate::failure::{Done, Failures};
use crate::output::print;
use weir_testbed::{Disk, Memory, Network, Throttle, detach};

/// Runs `weir testbed down`.
pub fn run(choice: &TestbedChoice) -> Done {
    let place = Place::of(choice)?;
    let record = place.required()?;
    let _lock = place.files().lock_new()?;
    remove(&place, &record)?;
    print(&format!("Testbed {} is down, and nothing of it is left.\n", record.profile))
}

/// Removes everything that exists. A failure does not stop the rest. What stays is named, and the
/// next try finds it.
pub fn remove(place: &Place, record: &Record) -> Done {
    let mut failures = Failures::default();
    failures.keep(end_perturbers(place));
    let cluster = place.cluster();
    if cluster.exists() {
        failures.keep(cluster.description().and_then(|it| stop(&cluster, &it, true)));
    }
    failures.keep(Throttle::remove(&place.name()).map_err(failed));
    for (number, node) in record.numbered() {
        failures.keep(Memory::remove(&place.memory_name(number)).map_err(failed));
        // First the users of each part, then the part itself, so that nothing waits for a part that
        // is gone.
        let (backing, at) = (place.backing(number, node.drive), place.disk(number));
        failures.keep(Disk::remove(&backing, &at).map_err(failed));
        if node.drive.is_some() {
            failures.keep(end_head(place, number));
        }
    }
    failures.keep(Network::remove(&place.name()).map_err(failed));
    failures.end()?;
    place.delete()
}

/// Ends the perturbing processes. Their open files and connections would otherwise keep disks and
/// networks alive.
fn end_perturbers(place: &Place) -> Done {
    place.perturbers()?.into_iter().try_for_each(|perturber| perturber.stop(true).map(drop))
}

/// Ends the daemon of a disk's head. It ends by itself after its file is unmounted and unused.
fn end_head(place: &Place, number: u32) -> Done {
    detach(&Disk::model_at(&place.disk(number))).map_err(failed)?;
    let daemon = Process::from_file(&place.files().pid_file(&head_name(number)));
    daemon.map_or(Ok(()), |daemon| daemon.stop(false).map(drop))
}
