//! What paper 0 says of PVFS striping, row by row of section 2.

use proptest::prelude::*;
use weir_layout::{
    Home, Pairs, Piece, Region, RegionList, Run, TargetInfo, columns_touched, locate, object_len,
    place, scatter, share,
};
use weir_types::codec::{Decode, Encode};
use weir_types::{ColumnIndex, LayoutKind, LayoutSpec, ServerId, StripeMap, TargetId};

fn io_nodes(n: u32) -> Vec<TargetInfo> {
    (0..n)
        .map(|i| TargetInfo {
            target: TargetId(i),
            home: Home::alone(ServerId(i)),
            free_bytes: u64::MAX,
            online: true,
            returns: false,
            slow: false,
            local: false,
            primaries: 0,
            wait_us: 0,
        })
        .collect()
}

/// The server's side of a read. It has only the object and the descriptor.
fn serve_read(object: &[u8], descriptor: &[u8], stripe: StripeMap, column: ColumnIndex) -> Vec<u8> {
    let regions = RegionList::from_bytes(descriptor).expect("descriptor");
    let mut pieces: Vec<Piece> = Vec::new();
    share(&regions, stripe, column, &mut pieces).expect("share");
    pieces
        .iter()
        .flat_map(|p| &object[p.object_offset as usize..p.end() as usize])
        .copied()
        .collect()
}

/// The objects of a segment that holds `data`, dealt unit by unit.
fn deal(data: &[u8], stripe: StripeMap) -> Vec<Vec<u8>> {
    let mut objects = vec![Vec::new(); usize::from(stripe.columns)];
    for (i, unit) in data.chunks(stripe.unit_bytes as usize).enumerate() {
        objects[i % usize::from(stripe.columns)].extend_from_slice(unit);
    }
    objects
}

fn test_data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Row 0.15: uniform stripes over I/O nodes, byte-exact.
#[test]
fn row_0_15_a_file_lies_in_uniform_stripes_over_the_io_nodes() {
    let stripe = StripeMap { unit_bytes: 65_536, columns: 4 };
    let data = test_data(1_000_003);
    let objects = deal(&data, stripe);
    for (offset, byte) in data.iter().enumerate() {
        let at = locate(stripe, offset as u64);
        assert_eq!(objects[usize::from(at.column.0)][at.object_offset as usize], *byte);
    }
    for (column, object) in objects.iter().enumerate() {
        let expected = object_len(stripe, ColumnIndex(column as u16), data.len() as u64);
        assert_eq!(object.len() as u64, expected);
    }
}

proptest! {
    /// Row 0.19: {base node, node count, stripe size} fully specifies the
    /// location of every byte: node = (base + offset / unit) mod nodes.
    #[test]
    fn row_0_19_base_count_and_unit_alone_locate_every_byte(
        nodes in 1u32..40, count in 1u16..40, base in 0u32..40, unit_blocks in 1u32..64,
        offset in 0u64..1 << 60, seed in any::<u64>(),
    ) {
        let count = count.min(nodes as u16);
        let base = base % nodes;
        let spec = LayoutSpec {
            kind: LayoutKind::Striped,
            base: Some(base),
            count,
            stripe_unit_bytes: unit_blocks * 4096,
            ..LayoutSpec::default()
        };
        let layout = place(&spec, &io_nodes(nodes), &Pairs::default(), seed).unwrap();
        let [segment] = &layout.segments[..] else { panic!("one segment") };

        // The client's arithmetic with the three numbers of the reply to open.
        let (base, count, unit) =
            (u64::from(layout.base), segment.columns.len() as u64, u64::from(segment.stripe_unit_bytes));
        let node = (base + offset / unit % count) % u64::from(nodes);
        let in_object = offset / (unit * count) * unit + offset % unit;

        let at = locate(segment.stripe(), offset);
        prop_assert_eq!(segment.columns[usize::from(at.column.0)].targets[0], TargetId(node as u32));
        prop_assert_eq!(at.object_offset, in_object);
    }

    /// Row 0.24: the same descriptor bytes go to every server, strided ones
    /// too; each works out its share, and the answers together are the data.
    #[test]
    fn row_0_24_servers_work_out_their_shares_from_one_descriptor(
        raw in proptest::collection::vec((0u64..60_000, 1u64..9000, 0u64..20_000, 1u32..5), 1..5),
        unit_blocks in 1u32..4, columns in 1u16..6,
    ) {
        let stripe = StripeMap { unit_bytes: unit_blocks * 4096, columns };
        let regions = raw
            .into_iter()
            .map(|(offset, size, stride, count)| Region { offset, size, stride, count })
            .collect();
        let regions = RegionList::new(regions).unwrap();
        let data = test_data(regions.end() as usize);
        let objects = deal(&data, stripe);
        let descriptor = regions.to_bytes();

        let mut buffer = vec![0; regions.total_bytes() as usize];
        let mut filled = 0;
        let mut runs: Vec<Run> = Vec::new();
        // One request and one reply for each column touched, and no others.
        for column in columns_touched(&regions, stripe).unwrap().iter() {
            let payload = serve_read(&objects[usize::from(column.0)], &descriptor, stripe, column);
            prop_assert!(!payload.is_empty());
            prop_assert_eq!(
                scatter(&regions, stripe, column, &mut runs).unwrap(), payload.len() as u64
            );
            let mut rest = &payload[..];
            for run in &runs {
                let (head, tail) = rest.split_at(run.len as usize);
                buffer[run.buffer_offset as usize..][..head.len()].copy_from_slice(head);
                rest = tail;
            }
            filled += payload.len();
        }
        prop_assert_eq!(filled, buffer.len());
        let expected: Vec<u8> = regions
            .ranges()
            .flat_map(|(offset, len)| &data[offset as usize..(offset + len) as usize])
            .copied()
            .collect();
        prop_assert!(buffer == expected);
    }
}
