//! Layouts as flags, text and JSON.

use crate::args::{Family, LayoutFlags, Places, Protocol, Reduced};
use crate::failure::{Done, Failure};
use crate::text::human_size;
use serde_json::{Value, json};
use weir_types::limits::NEVER_S;
use weir_types::{Duplication, LayoutKind, LayoutSpec, Placement};

/// The layout that the flags ask for; `None` without flags.
pub fn from_flags(flags: &LayoutFlags) -> Done<Option<LayoutSpec>> {
    let LayoutFlags {
        layout,
        unit,
        count,
        base,
        chunk,
        sizes,
        copies,
        duplication,
        placement,
        reduce,
        after,
    } = flags;
    let given = layout.is_some()
        || unit.is_some()
        || count.is_some()
        || base.is_some()
        || chunk.is_some()
        || copies.is_some()
        || duplication.is_some()
        || placement.is_some()
        || reduce.is_some()
        || !sizes.is_empty();
    if !given {
        return Ok(None);
    }
    // A list of sizes is possible only with fragments.
    let family =
        layout.unwrap_or(if sizes.is_empty() { Family::Striped } else { Family::Fragments });
    let kind = match family {
        Family::Striped => LayoutKind::Striped,
        Family::Fragments => LayoutKind::Fragments,
        Family::Chunked => LayoutKind::Chunked,
    };
    let misfit =
        |flag: &str, families: &str| Err(Failure::new(format!("{flag} is for {families} layouts")));
    if unit.is_some() && kind != LayoutKind::Striped {
        return misfit("--unit", "striped");
    }
    if chunk.is_some() && kind == LayoutKind::Striped {
        return misfit("--chunk", "chunked and fragments");
    }
    if !sizes.is_empty() && kind != LayoutKind::Fragments {
        return misfit("--sizes", "fragments");
    }
    let is_graduated = *placement == Some(Places::Graduated);
    if base.is_some() && kind == LayoutKind::Chunked && !is_graduated {
        return misfit("--base", "striped and fragments");
    }
    let copies = copies.unwrap_or(0);
    if duplication.is_some() && copies < 2 {
        return Err(Failure::new("--duplication is for files with several copies: add --copies 2"));
    }
    if placement.is_some() && copies < 2 && !is_graduated {
        return Err(Failure::new("--placement is for files with several copies: add --copies 2"));
    }
    let placement = match placement {
        None => Placement::Usual,
        Some(Places::Chained) => Placement::Chained,
        Some(Places::Groups) => Placement::Groups,
        Some(Places::Random) => Placement::Random,
        Some(Places::Graduated) => Placement::Graduated,
    };
    let duplication = duplication.map(|protocol| match protocol {
        Protocol::ServerSync => Duplication::ServerSync,
        Protocol::ServerAsync => Duplication::ServerAsync,
        Protocol::ClientSync => Duplication::ClientSync,
        Protocol::ClientAsync => Duplication::ClientAsync,
        Protocol::Hybrid => Duplication::Hybrid,
    });
    let unit = unit.map_or(0, |size| size.0);
    let columns = reduce.and_then(|code| code.columns);
    if count.zip(columns).is_some_and(|(count, columns)| count != columns) {
        return Err(Failure::new("--reduce says another number of columns than --count"));
    }
    let (parities, mirrors, encode_after_s) = match reduce {
        None => (0, false, 0),
        // `--reduce none` for a file that has parities: it gets no further ones.
        Some(Reduced { parities: 0, .. }) => (1, false, NEVER_S),
        Some(Reduced { parities, mirrors, .. }) => {
            let after_s = after.map_or(0, |after| after.as_secs());
            (*parities, *mirrors, u32::try_from(after_s).unwrap_or(NEVER_S).min(NEVER_S - 1))
        }
    };
    let spec = LayoutSpec {
        kind,
        base: *base,
        count: count.or(columns).unwrap_or(0),
        stripe_unit_bytes: u32::try_from(unit)
            .map_err(|_| Failure::new("--unit: too large: at most 1G"))?,
        segment_bytes: chunk.map_or(0, |size| size.0),
        fragment_bytes: sizes.iter().map(|size| size.0).collect(),
        copies,
        duplication,
        placement,
        parities,
        mirrors,
        encode_after_s,
    };
    weir_layout::check_spec(&spec)?;
    Ok(Some(spec))
}

/// The name of a family.
pub fn family_name(kind: LayoutKind) -> &'static str {
    match kind {
        LayoutKind::Striped => "striped",
        LayoutKind::Fragments => "fragments",
        LayoutKind::Chunked => "chunked",
    }
}

/// The name of a protocol of duplication.
pub fn duplication_name(duplication: Duplication) -> &'static str {
    match duplication {
        Duplication::ServerSync => "server-sync",
        Duplication::ServerAsync => "server-async",
        Duplication::ClientSync => "client-sync",
        Duplication::ClientAsync => "client-async",
        Duplication::Hybrid => "hybrid",
    }
}

/// The placement of copies, as text.
pub fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::Usual => "usual",
        Placement::Chained => "chained",
        Placement::Groups => "groups",
        Placement::Random => "random",
        Placement::Graduated => "graduated",
    }
}

/// A requested layout as one line of text.
pub fn text(spec: &LayoutSpec) -> String {
    let or = |n: u64, text: &str| if n == 0 { text.to_owned() } else { human_size(n) };
    let mut words = vec![family_name(spec.kind).to_owned()];
    words.push(match spec.count {
        0 => "on all targets".to_owned(),
        1 => "on 1 target".to_owned(),
        n => format!("on {n} targets"),
    });
    if let Some(base) = spec.base {
        words.push(format!("from target {base} in target order"));
    }
    match spec.kind {
        LayoutKind::Striped => {
            words.push(format!("unit {}", or(u64::from(spec.stripe_unit_bytes), "64K")));
        }
        LayoutKind::Chunked if spec.placement == Placement::Graduated => {
            words.push(format!(
                "chunks of {}, each where it is written first",
                or(spec.segment_bytes, "1.0M")
            ));
        }
        LayoutKind::Chunked => words.push(format!("chunks of {}", or(spec.segment_bytes, "64M"))),
        LayoutKind::Fragments if spec.fragment_bytes.is_empty() => {
            words.push(format!("fragments of {}", or(spec.segment_bytes, "64M")));
        }
        LayoutKind::Fragments => {
            let sizes: Vec<String> = spec.fragment_bytes.iter().map(|n| human_size(*n)).collect();
            words.push(format!("fragments of {}", sizes.join(",")));
        }
    }
    if spec.copies > 1 {
        let protocol = duplication_name(spec.duplication.unwrap_or_default());
        let placement = placement_name(spec.placement.of(spec.kind));
        words.push(format!("{} copies, {protocol}, {placement}", spec.copies));
    }
    if spec.parities > 0 && spec.encode_after_s != NEVER_S {
        words.push(format!(
            "{}{} after {} without writers",
            parities_name(usize::from(spec.parities)),
            if spec.mirrors { " beside two copies" } else { "" },
            human_time(u64::from(spec.encode_after_s))
        ));
    }
    words.join(", ")
}

/// So many parities, as text.
pub fn parities_name(parities: usize) -> String {
    if parities == 1 { "1 parity".to_owned() } else { format!("{parities} parities") }
}

fn human_time(s: u64) -> String {
    match s {
        1.. if s.is_multiple_of(86_400) => format!("{} d", s / 86_400),
        1.. if s.is_multiple_of(3_600) => format!("{} h", s / 3_600),
        1.. if s.is_multiple_of(60) => format!("{} min", s / 60),
        _ => format!("{s} s"),
    }
}

/// A requested layout as JSON. The cluster decides where it has null or 0.
pub fn describe(spec: &LayoutSpec) -> Value {
    json!({
        "layout": family_name(spec.kind),
        "base": spec.base,
        "count": spec.count,
        "stripe_unit_bytes": spec.stripe_unit_bytes,
        "segment_bytes": spec.segment_bytes,
        "fragment_bytes": spec.fragment_bytes,
        "copies": spec.copies,
        "duplication": duplication_name(spec.duplication.unwrap_or_default()),
        "placement": placement_name(spec.placement.of(spec.kind)),
        "parities": if spec.encode_after_s == NEVER_S { 0 } else { spec.parities },
        "mirrors": spec.mirrors && spec.encode_after_s != NEVER_S,
        "encode_after_s": spec.encode_after_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::ByteSize;

    #[test]
    fn flags_make_a_layout() {
        assert_eq!(from_flags(&LayoutFlags::default()).unwrap(), None);
        let flags = LayoutFlags { unit: Some(ByteSize(8192)), ..LayoutFlags::default() };
        let spec = from_flags(&flags).unwrap().unwrap();
        assert_eq!((spec.kind, spec.stripe_unit_bytes), (LayoutKind::Striped, 8192));
        assert_eq!(text(&spec), "striped, on all targets, unit 8.0K");

        let duplication = Some(Protocol::ServerAsync);
        let flags = LayoutFlags { copies: Some(2), duplication, ..LayoutFlags::default() };
        let spec = from_flags(&flags).unwrap().unwrap();
        assert_eq!((spec.copies, spec.duplication), (2, Some(Duplication::ServerAsync)));
        assert_eq!(
            text(&spec),
            "striped, on all targets, unit 64K, 2 copies, server-async, chained"
        );

        let placement = Some(Places::Groups);
        let flags = LayoutFlags { copies: Some(2), placement, ..LayoutFlags::default() };
        assert_eq!(from_flags(&flags).unwrap().unwrap().placement, Placement::Groups);

        let (layout, placement) = (Some(Family::Chunked), Some(Places::Graduated));
        let (count, base) = (Some(2), Some(3));
        let flags = LayoutFlags { layout, placement, count, base, ..LayoutFlags::default() };
        let spec = from_flags(&flags).unwrap().unwrap();
        assert_eq!((spec.placement, spec.base), (Placement::Graduated, Some(3)));
        assert_eq!(
            text(&spec),
            "chunked, on 2 targets, from target 3 in target order, chunks of 1.0M, each where it \
             is written first"
        );
        let flags = LayoutFlags { placement, ..LayoutFlags::default() };
        assert!(from_flags(&flags).is_err(), "stripes are where they are");

        let sizes = vec![ByteSize(1 << 20), ByteSize(2 << 20)];
        let flags = LayoutFlags { sizes, ..LayoutFlags::default() };
        assert_eq!(from_flags(&flags).unwrap().unwrap().kind, LayoutKind::Fragments);
    }

    #[test]
    fn flags_that_do_not_belong_together_are_refused() {
        let chunked = Some(Family::Chunked);
        let unit = Some(ByteSize(65536));
        let flags = LayoutFlags { layout: chunked, unit, ..LayoutFlags::default() };
        assert!(from_flags(&flags).unwrap_err().message.contains("--unit"));
        let odd = LayoutFlags { unit: Some(ByteSize(1000)), ..LayoutFlags::default() };
        assert!(from_flags(&odd).is_err(), "a unit that is no multiple of 4 KiB");
        let placement = Some(Places::Groups);
        for copies in [None, Some(3)] {
            let groups = LayoutFlags { copies, placement, ..LayoutFlags::default() };
            assert!(from_flags(&groups).is_err(), "two groups, two copies");
        }
        let many = LayoutFlags { copies: Some(9), ..LayoutFlags::default() };
        assert!(from_flags(&many).unwrap_err().message.contains("9 copies"));
        let duplication = Some(Protocol::ServerSync);
        let one = LayoutFlags { duplication, ..LayoutFlags::default() };
        assert!(from_flags(&one).unwrap_err().message.contains("--copies"));
    }
}
