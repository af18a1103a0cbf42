//! Fencing a file whose writer may still have something on its way: a client
//! that carries a generation to all objects, and one that comes late.

use crate::harness::{Cluster, Place, noise};
use crate::library::{client, config};
use weir_client::{Client, Context, CreateOptions, File};
use weir_types::{ErrorKind, FileId, Generation, LayoutKind, LayoutSpec};
use weir_wire::Rights;
use weir_wire::meta::SetAttrRequest;

/// Every kind of layout, small enough that a short file is on many objects.
fn layouts() -> [LayoutSpec; 3] {
    let striped = LayoutSpec { stripe_unit_bytes: 8192, ..LayoutSpec::default() };
    let fragments = LayoutSpec {
        kind: LayoutKind::Fragments,
        fragment_bytes: vec![10_000, 4096, 70_000],
        ..LayoutSpec::default()
    };
    let chunked =
        LayoutSpec { kind: LayoutKind::Chunked, segment_bytes: 1 << 20, ..LayoutSpec::default() };
    [striped, fragments, chunked]
}

/// A client with a short timeout.
fn hasty(cluster: &Cluster<'_>) -> Client {
    let config = config(cluster).without_cache();
    Client::connect(weir_client::ClientConfig { request_timeout_ms: 1000, ..config }).unwrap()
}

fn read(file: &File, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    file.read_at(&Context::root(), 0, &mut buffer).unwrap();
    buffer
}

#[test]
fn the_size_of_a_dead_writer_is_found_and_its_late_writes_change_nothing() {
    let place = Place::new();
    let cluster = place.up("fence", &["--targets", "4"]);
    let ctx = Context::root();
    for (number, layout) in layouts().into_iter().enumerate() {
        let name = format!("f{number}").into_bytes();
        let (dying, next) = (hasty(&cluster), client(&cluster, false));
        let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
        let (late, attr) = dying.create(&ctx, FileId::ROOT, &name, &options).unwrap();
        // Out of order, with a hole that leaves objects without a byte.
        let data = noise(5000, number as u64);
        late.write_at(&ctx, 30_001, &data).unwrap();
        late.write_at(&ctx, 7, &data).unwrap();
        let (file, _) = next.open(&ctx, attr.file, Rights::READ_WRITE).unwrap();
        let higher = Generation(attr.generation.0 + 1);
        for _ in 0..2 {
            let fenced = file.fence(&ctx, higher).unwrap();
            assert_eq!((fenced.size, fenced.newest), (35_001, higher), "{:?}", file.layout().kind);
        }
        // Over what it wrote, and where no object was.
        for offset in [7, 12_000] {
            let refused = late.write_at(&ctx, offset, &[9; 100]).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Stale, "{refused}");
        }
        let mut expected = vec![0; 35_001];
        expected[30_001..].copy_from_slice(&data);
        expected[7..5007].copy_from_slice(&data);
        assert!(read(&late, 35_001) == expected, "{:?}", file.layout().kind);
        late.close(&ctx).ok();
        file.close(&ctx).unwrap();
        // The objects that the fence made go with the file.
        next.unlink(&ctx, FileId::ROOT, &name).unwrap();
    }
    // Nothing that the fence made is taken for damage.
    cluster.weir(&["fsck"]).ok();
}

/// The metadata server knows the new size before who cuts the file has its answer.
#[test]
fn what_a_thread_writes_after_it_has_seen_a_cut_of_another_thread_is_not_cut() {
    const CUT: u64 = 8_000;
    let place = Place::new();
    let cluster = place.up("fence", &["--targets", "4"]);
    let (ctx, fs) = (Context::root(), client(&cluster, false));
    let (file, attr) = fs.create(&ctx, FileId::ROOT, b"cut", &CreateOptions::default()).unwrap();
    for round in 0..200 {
        file.write_at(&ctx, 0, &noise(30_000, round)).unwrap();
        file.flush(&ctx).unwrap();
        let behind = CUT + 1_000 + round;
        std::thread::scope(|scope| {
            let cut = scope.spawn(|| file.truncate(&ctx, CUT));
            while fs.getattr(&ctx, attr.file).unwrap().size != CUT {}
            file.write_at(&ctx, behind, &[7; 16]).unwrap();
            cut.join().unwrap().unwrap();
        });
        assert_eq!(fs.getattr(&ctx, attr.file).unwrap().size, behind + 16, "round {round}");
        let found = read(&file, 30_000);
        assert_eq!(found[..CUT as usize], noise(30_000, round)[..CUT as usize]);
        assert!(found[CUT as usize..behind as usize].iter().all(|byte| *byte == 0));
        assert_eq!(found[behind as usize..behind as usize + 16], [7; 16], "round {round}");
        file.truncate(&ctx, 0).unwrap();
    }
}

/// Opening with `O_TRUNC` is a cut, too.
#[test]
fn what_a_thread_writes_after_it_has_seen_another_thread_empty_a_file_stays() {
    let place = Place::new();
    let cluster = place.up("fence", &["--targets", "4"]);
    let (ctx, fs) = (Context::root(), client(&cluster, false));
    let (file, attr) = fs.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    for round in 0..200 {
        file.write_at(&ctx, 0, &noise(30_000, round)).unwrap();
        file.flush(&ctx).unwrap();
        std::thread::scope(|scope| {
            let emptied = scope.spawn(|| {
                let options = CreateOptions { truncate: true, ..CreateOptions::default() };
                let (other, _) = fs.create(&ctx, FileId::ROOT, b"f", &options).unwrap();
                other.close(&ctx).unwrap();
            });
            while fs.getattr(&ctx, attr.file).unwrap().size != 0 {}
            file.write_at(&ctx, round, &[7; 16]).unwrap();
            emptied.join().unwrap();
        });
        assert_eq!(fs.getattr(&ctx, attr.file).unwrap().size, round + 16, "round {round}");
        let mut expected = vec![0; round as usize];
        expected.extend([7; 16]);
        assert_eq!(read(&file, 30_000)[..expected.len()], expected, "round {round}");
    }
    file.close(&ctx).unwrap();
}

/// A size that is set by path, while another thread opens the file and writes.
#[test]
fn a_file_that_is_opened_while_it_is_cut_by_path_loses_no_later_write() {
    const CUT: u64 = 8_000;
    let place = Place::new();
    let cluster = place.up("fence", &["--targets", "4"]);
    let (ctx, fs) = (Context::root(), client(&cluster, false));
    let (file, attr) = fs.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.write_at(&ctx, 0, &noise(30_000, 1)).unwrap();
    file.close(&ctx).unwrap();
    let set = |size| SetAttrRequest { size: Some(size), ..weir_client::set_nothing(attr.file) };
    for round in 0..200 {
        fs.setattr(&ctx, &set(30_000)).unwrap();
        std::thread::scope(|scope| {
            let cut = scope.spawn(|| fs.setattr(&ctx, &set(CUT)));
            let (open, _) = fs.open(&ctx, attr.file, Rights::READ_WRITE).unwrap();
            while fs.getattr(&ctx, attr.file).unwrap().size != CUT {}
            open.write_at(&ctx, 20_000 + round, &[7; 16]).unwrap();
            open.sync(&ctx).unwrap();
            open.close(&ctx).unwrap();
            cut.join().unwrap().unwrap();
        });
        assert_eq!(fs.getattr(&ctx, attr.file).unwrap().size, 20_016 + round, "round {round}");
    }
}

/// As before, but nobody asks for the size: what an open was answered before the cut is not believed.
#[test]
fn an_append_goes_to_the_end_that_another_thread_has_set_while_the_file_was_opened() {
    let place = Place::new();
    let cluster = place.up("fence", &["--targets", "4"]);
    let (ctx, fs) = (Context::root(), client(&cluster, false));
    let (file, attr) = fs.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.close(&ctx).unwrap();
    let set = |size| SetAttrRequest { size: Some(size), ..weir_client::set_nothing(attr.file) };
    for round in 0..300 {
        fs.setattr(&ctx, &set(30_000)).unwrap();
        let open = std::thread::scope(|scope| {
            let open = scope.spawn(|| fs.open(&ctx, attr.file, Rights::READ_WRITE).unwrap().0);
            fs.setattr(&ctx, &set(8_000)).unwrap();
            open.join().unwrap()
        });
        assert_eq!(open.append(&ctx, b"end").unwrap(), 8_000, "round {round}");
        open.close(&ctx).unwrap();
    }
}
