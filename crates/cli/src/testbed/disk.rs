//! `weir testbed disk`: the daemon of a disk with a modelled head.

use super::failed::failed;
use super::record::Place;
use crate::args::{TestbedChoice, TestbedDisk};
use crate::failure::{Done, Failure};
use crate::serve::{Leaves, serve};
use crate::signals::Signals;
use weir_testbed::{Disk, Model};

/// Serves until the disk is unmounted. A signal unmounts it.
pub fn run(disk: &TestbedDisk) -> Done {
    serve(&disk.detach, Leaves::First, |ready| {
        let signals = Signals::hold()?;
        let place = Place::of(&TestbedChoice { dir: Some(disk.dir.clone()) })?;
        let drive = place.required()?.node(disk.node)?.drive;
        let drive = drive.ok_or_else(|| Failure::new("this disk has no head"))?;
        let at = Disk::model_at(&place.disk(disk.node));
        let model = Model::mount(&place.image(disk.node), &at, drive).map_err(failed)?;
        signals.on_signal(model.end())?;
        ready(&format!("the disk of node {} is at {}", disk.node, at.display()));
        model.wait().map_err(failed)
    })
}
