//! Chooses the schemes to compute, and computes a row for each.

use super::arguments::{LayoutChoice, Protocol, Reliability};
use crate::failure::{Done, Failure};
use crate::text::ByteSize;
use weir_reliability::{Assessment, Duplication, Layout, Misfit, Redundancy, Scheme, assess};

/// The most combinations.
const MAX_ROWS: usize = 500;

/// The schemes that are compared without arguments.
const COMPARISON: [(Layout, Redundancy); 9] = [
    (Layout::Striped, Redundancy::Copies(1)),
    (Layout::Mirrored, Redundancy::Copies(2)),
    (Layout::Chained, Redundancy::Copies(2)),
    (Layout::Random, Redundancy::Copies(2)),
    (Layout::Chained, Redundancy::Copies(3)),
    (Layout::Random, Redundancy::Copies(3)),
    (Layout::Striped, Redundancy::Code { data: 8, parity: 2 }),
    (Layout::Random, Redundancy::Code { data: 8, parity: 2 }),
    (Layout::Random, Redundancy::Raid5Mirror { data: 8 }),
];

/// A row of the answer.
pub struct Row {
    pub scheme: Scheme,
    /// `None` with one copy, and with codes.
    pub protocol: Option<Protocol>,
    pub rebuild: ByteSize,
    pub figures: Assessment,
}

/// All rows, and the schemes left out of the comparison because they do not fit the cluster.
pub struct Rows {
    pub rows: Vec<Row>,
    pub left_out: Vec<String>,
}

/// Computes the rows.
pub fn rows(asked: &Reliability) -> Done<Rows> {
    let compares = asked.layout.is_empty() && asked.copies.is_empty() && asked.code.is_empty();
    let schemes = if compares { COMPARISON.to_vec() } else { chosen(asked)? };
    if schemes.len() * asked.rebuild.len() * asked.protocol.len().max(1) > MAX_ROWS {
        return Err(Failure::new(format!("more than {MAX_ROWS} combinations: ask for fewer")));
    }
    let copied = |r: &Redundancy| matches!(r, Redundancy::Copies(2..));
    if !asked.protocol.is_empty() && !schemes.iter().any(|(_, r)| copied(r)) {
        return Err(Failure::new("--protocol is for copies, and none are asked for")
            .hint("weir reliability --layout mirrored --copies 2 --protocol server-async"));
    }
    let mut answer = Rows { rows: Vec::new(), left_out: Vec::new() };
    for (layout, redundancy) in schemes {
        let protocols: Vec<Option<Protocol>> = match &asked.protocol[..] {
            _ if !copied(&redundancy) => vec![None],
            [] => vec![Some(Protocol::ServerSync)],
            some => some.iter().copied().map(Some).collect(),
        };
        for protocol in protocols {
            let duplication = match protocol {
                Some(protocol) => protocol.duplication(asked),
                None => Duplication::Synchronous,
            };
            let scheme = Scheme { layout, redundancy, duplication };
            for &rebuild in &asked.rebuild {
                match assess(&asked.cluster(rebuild), &scheme, asked.mission) {
                    Ok(figures) => answer.rows.push(Row { scheme, protocol, rebuild, figures }),
                    Err(misfit @ Misfit::Nodes(..)) if compares => {
                        answer.left_out.push(misfit.to_string());
                    }
                    Err(misfit) => return Err(refused(&misfit)),
                }
            }
        }
    }
    answer.left_out.dedup();
    Ok(answer)
}

fn refused(misfit: &Misfit) -> Failure {
    let failure = Failure::new(misfit.to_string());
    match misfit {
        Misfit::Nodes(_, _, nodes) => failure.hint(format!("--nodes {nodes}")),
        Misfit::Backlog => failure.hint("raise --write-every, or lower --duplicate-in"),
        Misfit::Value(..) | Misfit::Layout(..) => failure.hint("weir reliability --help"),
    }
}

/// Combines each layout with the copies and codes that fit it. Without layouts, those that fit the
/// other arguments are used.
fn chosen(asked: &Reliability) -> Done<Vec<(Layout, Redundancy)>> {
    use LayoutChoice::{Chained, Mirrored, Random, Striped};
    let layouts = match &asked.layout[..] {
        [] => vec![Striped, Mirrored, Chained, Random],
        some => some.to_vec(),
    };
    let copies = asked.copies.iter().copied().map(Redundancy::Copies);
    let codes = asked.code.iter().copied();
    let mut schemes = Vec::new();
    for layout in &layouts {
        let mut fitting: Vec<Redundancy> = match layout {
            Striped => codes.clone().collect(),
            Mirrored | Chained => copies.clone().collect(),
            Random => copies.clone().chain(codes.clone()).collect(),
        };
        // As usual, a layout that is named is shown even without fitting copies.
        if fitting.is_empty() && !asked.layout.is_empty() {
            fitting.push(match layout {
                Striped => Redundancy::Copies(1),
                Mirrored | Chained => Redundancy::Copies(2),
                Random => Redundancy::Copies(3),
            });
        }
        schemes.extend(fitting.into_iter().map(|redundancy| (layout.layout(), redundancy)));
    }
    for (list, flag, fits) in [
        (asked.copies.len(), "--copies", &[Mirrored, Chained, Random][..]),
        (asked.code.len(), "--code", &[Striped, Random]),
    ] {
        if list > 0 && !layouts.iter().any(|layout| fits.contains(layout)) {
            let names: Vec<String> = fits.iter().map(|l| l.layout().to_string()).collect();
            return Err(Failure::new(format!("{flag} is for other layouts than that"))
                .hint(format!("--layout {}", names.join(","))));
        }
    }
    Ok(schemes)
}
