//! Programs learn where the bytes of a file are, and what the disks there give now.

use crate::harness::{Place, eventually, noise};
use crate::library::client;
use weir_client::{Context, CreateOptions};
use weir_types::{FileId, LayoutSpec, TargetId};

const UNIT: u64 = 8192;

#[test]
fn locations_name_hosts_targets_and_what_each_disk_gives() {
    let place = Place::new();
    let cluster = place.up("where", &["--targets", "4", "--targets-per-server", "2"]);
    let client = client(&cluster, false);
    let ctx = Context::root();
    let layout =
        LayoutSpec { stripe_unit_bytes: UNIT as u32, base: Some(0), ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let (file, _) = client.create(&ctx, FileId::ROOT, b"f", &options).unwrap();
    let data = noise(8 << 20, 3);
    file.write_at(&ctx, 0, &data).unwrap();
    file.sync(&ctx).unwrap();

    let found = client.locations(&ctx, &file, 100, 5 * UNIT).unwrap();
    let expected: Vec<(u64, u64, u32)> = [
        (100, UNIT - 100, 1),
        (UNIT, UNIT, 2),
        (2 * UNIT, UNIT, 3),
        (3 * UNIT, UNIT, 4),
        (4 * UNIT, UNIT, 1),
        (5 * UNIT, 100, 2),
    ]
    .into();
    let seen: Vec<_> =
        found.iter().map(|l| (l.offset, l.len, l.copies[0].place.target.0)).collect();
    assert_eq!(seen, expected);
    let map = client.cluster_map().unwrap();
    for location in &found {
        let of = &location.copies[0].place;
        let server = map.server_of(of.target).unwrap();
        assert_eq!((&of.host, &of.address), (&server.host, &server.tcp));
        assert_eq!(of.server, Some(server.server));
        assert!(of.state.is_online() && !of.host.is_empty());
    }

    // Nothing is located beyond the end.
    let end = data.len() as u64;
    let last = client.locations_of(&ctx, b"/f", end - 10, u64::MAX).unwrap();
    assert_eq!(last.iter().map(|l| (l.offset, l.len)).collect::<Vec<_>>(), [(end - 10, 10)]);
    assert!(client.locations(&ctx, &file, end, 1).unwrap().is_empty());

    // Reads make servers report the speed of their disks.
    eventually("each disk gives something", || {
        let mut buffer = vec![0; data.len()];
        file.read_at(&ctx, 0, &mut buffer).unwrap();
        let found = client.locations(&ctx, &file, 0, 4 * UNIT).unwrap();
        let gives = found.iter().map(|l| l.copies[0].place.bytes_per_s);
        gives.clone().count() == 4 && gives.flatten().filter(|rate| *rate > 0).count() == 4
    });
    assert_eq!(
        client.locations_of(&ctx, b"/f", 0, 1).unwrap()[0].copies[0].place.target,
        TargetId(1)
    );
}
