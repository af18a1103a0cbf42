//! All figures of a scheme on a cluster.

use crate::available::unavailability;
use crate::cluster::{Cluster, HOURS_PER_YEAR};
use crate::many::mean_time_to_first_loss;
use crate::model::model;
use crate::odds;
use crate::scheme::{Misfit, Scheme};

/// How long data lasts, and how often it can be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assessment {
    /// Mean hours until anything is lost.
    pub mttdl_hours: f64,
    /// Probability that data is lost during the mission.
    pub loss_probability: f64,
    /// Share of the time during which some data cannot be read.
    pub unavailability: f64,
    /// Mean hours from a disk failure to the end of the rebuild.
    pub rebuild_hours: f64,
    /// Share of the disks' capacity that users' data can fill.
    pub usable: f64,
    /// Probability that a primary disk holds acknowledged writes that exist nowhere else.
    pub pending: f64,
    /// Mean bytes of such writes on all disks.
    pub bytes_at_risk: f64,
    /// Mean bytes of such writes lost with their disks in a year.
    pub bytes_lost_per_year: f64,
}

/// Assesses a scheme on a cluster for a mission of this many hours that begins with all disks good.
pub fn assess(
    cluster: &Cluster,
    scheme: &Scheme,
    mission_hours: f64,
) -> Result<Assessment, Misfit> {
    cluster.check()?;
    scheme.check(cluster)?;
    if !(0.0..=1e9).contains(&mission_hours) {
        return Err(Misfit::Value("the mission", "from 0 to 1e9 hours"));
    }
    let model = model(cluster, scheme)?;
    let one_copy = scheme.redundancy.spare() == 0;
    let duplication = |value: f64| if one_copy { 0.0 } else { value };
    let at_risk = duplication(scheme.duplication.bytes_at_risk()?) * model.primaries;
    Ok(Assessment {
        mttdl_hours: mean_time_to_first_loss(&model.chain, model.groups),
        loss_probability: odds::any(model.chain.loss_within(mission_hours), model.groups),
        unavailability: unavailability(cluster, scheme, model.rebuild_hours),
        rebuild_hours: model.rebuild_hours,
        usable: scheme.redundancy.usable(),
        pending: duplication(scheme.duplication.pending()?),
        bytes_at_risk: at_risk,
        bytes_lost_per_year: at_risk * cluster.disk_failures_per_hour() * HOURS_PER_YEAR,
    })
}
