//! Damaged blocks that servers have found.

use weir_wire::data::ServerStatus;

/// Numbers of damaged blocks since the servers started.
pub struct Rot {
    found: u64,
    repaired: u64,
    /// Damaged blocks that cannot be restored from another copy or set.
    pub unrepairable: u64,
}

impl Rot {
    /// Reads the numbers from the counters of the servers.
    pub fn of(servers: &[(String, ServerStatus)]) -> Self {
        let sum = |name: &str| -> u64 {
            let counters = servers.iter().flat_map(|(_, status)| &status.counters);
            counters.filter(|(counter, _)| counter == name).map(|(_, value)| value).sum()
        };
        let [found, repaired, unrepairable] =
            ["rot.found", "rot.repaired", "rot.unrepairable"].map(sum);
        Self { found, repaired, unrepairable }
    }

    /// The numbers as text; empty if there are none.
    pub fn text(&self) -> String {
        let Self { found, repaired, unrepairable } = self;
        let of = format!("Rot: {found} blocks found, {repaired} repaired from other copies");
        match (found, unrepairable) {
            (0, _) => String::new(),
            (_, 0) => format!("\n{of}\n"),
            (_, lost) => format!("\n{of}, {lost} not\n"),
        }
    }
}
