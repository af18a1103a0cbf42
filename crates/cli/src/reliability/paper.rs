//! `weir reliability --paper`: computes the rows of the paper on CEFT-PVFS with its model.

use super::units::lifetime;
use crate::failure::{Done, Failure};
use crate::output::{print, print_json};
use crate::text::Table;
use serde_json::json;
use weir_reliability::Misfit;
use weir_reliability::paper::{GROUPS, RATES};

/// The availability of PVFS on 16, 32 and 64 servers, as printed in the paper.
const PVFS_AVAILABLE: [&str; 3] = ["0.91", "0.85", "0.73"];

/// Mean seconds between writes (MTTW) and until a write is duplicated (MTTD), from figure 14 of the
/// paper.
const MTTW_S: f64 = 300.0;
const MTTD_S: [f64; 7] = [0.0, 0.1, 1.0, 5.0, 15.0, 60.0, 240.0];

/// One size of cluster.
struct Size {
    nodes: u32,
    pvfs_hours: f64,
    ceft_hours: f64,
    /// The factor if the metadata server of each group is counted too.
    with_metadata: f64,
}

impl Size {
    fn new(nodes: u32) -> Result<Self, Misfit> {
        Ok(Self {
            nodes,
            pvfs_hours: RATES.pvfs_mttdl(2 * nodes),
            ceft_hours: RATES.ceft_mttdl(nodes, 1.0)?,
            with_metadata: RATES.ceft_mttdl(nodes + 1, 1.0)? / RATES.pvfs_mttdl(2 * nodes + 1),
        })
    }

    fn factor(&self) -> f64 {
        self.ceft_hours / self.pvfs_hours
    }
}

/// Prints the rows of the paper beside the computed ones.
pub fn run(as_json: bool) -> Done {
    let failed = |misfit: Misfit| Failure::new(misfit.to_string());
    let sizes: Vec<Size> =
        GROUPS.into_iter().map(Size::new).collect::<Result<_, _>>().map_err(failed)?;
    let mut windows = Vec::new();
    for mttd_s in MTTD_S {
        let hours = RATES.ceft_mttdl(GROUPS[0], 1.0 - mttd_s / MTTW_S).map_err(failed)?;
        windows.push((mttd_s, hours));
    }
    if as_json {
        return print_json(&to_json(&sizes, &windows));
    }
    let mut rows = Table::new(&[
        "SERVERS",
        ">PVFS MTTDL",
        ">AVAILABLE",
        ">PAPER",
        ">CEFT MTTDL",
        ">AVAILABLE",
        ">PAPER",
        ">FACTOR",
        ">PAPER",
    ]);
    for (size, printed) in sizes.iter().zip(PVFS_AVAILABLE) {
        rows.row(vec![
            format!("{0}+{0}", size.nodes),
            lifetime(size.pvfs_hours),
            format!("{:.3}", RATES.availability(size.pvfs_hours)),
            printed.to_owned(),
            lifetime(size.ceft_hours),
            format!("{:.4}", RATES.availability(size.ceft_hours)),
            ">0.99".to_owned(),
            format!("{:.1}", size.factor()),
            ">40".to_owned(),
        ]);
    }
    let mut lags = Table::new(&[">DUPLICATED IN", ">CONSISTENT", ">CEFT MTTDL", ">AVAILABLE"]);
    for (mttd_s, hours) in windows {
        lags.row(vec![
            format!("{mttd_s} s"),
            format!("{:.4}", 1.0 - mttd_s / MTTW_S),
            lifetime(hours),
            format!("{:.4}", RATES.availability(hours)),
        ]);
    }
    let counted: Vec<String> = sizes.iter().map(|s| format!("{:.1}", s.with_metadata)).collect();
    print(&format!(
        "CEFT-PVFS, the model of Zhu, Jiang, Qin, Feng and Swanson (SNAPI 2003): a node fails once \
         a year and takes 2 days to repair, the switch once in 3 years.\n\n{}\n\
         FACTOR is the MTTDL of CEFT over that of PVFS on as many servers, writes acknowledged when \
         duplicated. With the metadata servers counted as data servers: {}.\n\n\
         8+8 servers by how long a write waits to be duplicated, writing every 5 minutes:\n\n{}",
        rows.render(),
        counted.join(", "),
        lags.render(),
    ))
}

fn to_json(sizes: &[Size], windows: &[(f64, f64)]) -> serde_json::Value {
    let size = |(size, printed): (&Size, &str)| {
        json!({
            "servers_per_group": size.nodes,
            "pvfs_mttdl_hours": size.pvfs_hours,
            "pvfs_availability": RATES.availability(size.pvfs_hours),
            "pvfs_availability_printed": printed,
            "ceft_mttdl_hours": size.ceft_hours,
            "ceft_availability": RATES.availability(size.ceft_hours),
            "factor": size.factor(),
            "factor_with_metadata_servers": size.with_metadata,
        })
    };
    let window = |(mttd_s, hours): &(f64, f64)| {
        json!({
            "mttd_seconds": mttd_s,
            "mttw_seconds": MTTW_S,
            "ceft_mttdl_hours": hours,
            "ceft_availability": RATES.availability(*hours),
        })
    };
    json!({
        "rows": sizes.iter().zip(PVFS_AVAILABLE).map(size).collect::<Vec<_>>(),
        "by_duplication_time": windows.iter().map(window).collect::<Vec<_>>(),
    })
}
