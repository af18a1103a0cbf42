//! Reading and writing through a real data server.

use crate::cluster::*;
use weir_layout::{Region, RegionList};
use weir_types::{ColumnIndex, ErrorKind, Generation, StripeMap};
use weir_wire::data::{
    FenceRequest, PingRequest, ReadFlags, StatObjectRequest, SyncRequest, TruncateRequest,
};

#[test]
fn what_was_written_is_read_again_from_every_transport() {
    let (_guard, dir) = scratch();
    let mut config = prepare(&dir);
    config.unix = Some(dir.join("sock"));
    let server = Running::start(config);
    let data = pattern(3 << 20);
    assert_eq!(server.connect().write(&access(1), 0, &data).unwrap(), 3 << 20);
    for address in [server.address(), weir_net::Address::Unix(dir.join("sock"))] {
        let mut client = Client::connect(&address, ticket(SERVER, FOREVER)).unwrap();
        client.ask(&PingRequest {}).unwrap();
        for (offset, len) in [(0, 3 << 20), (4096, 4096), (100, 1), (4095, 2), (70_000, 200_000)] {
            let read = client.read(&access(1), offset, len).unwrap();
            assert!(read == data[offset as usize..][..len], "{len} at {offset}");
        }
    }
}

#[test]
fn a_read_stops_at_the_end_and_a_missing_object_is_a_hole() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(5000)).unwrap();
    assert_eq!(client.read(&access(1), 4000, 10_000).unwrap(), pattern(5000)[4000..]);
    assert!(client.read(&access(1), 9000, 10).unwrap().is_empty());
    assert!(client.read(&access(2), 0, 100_000).unwrap().is_empty());
    // And it was not made by asking for it.
    let stat = client.ask(&StatObjectRequest { access: access(2) }).unwrap();
    assert!(!stat.exists);
    client.ask(&SyncRequest { access: access(2) }).unwrap();
}

#[test]
fn a_strided_request_touches_only_the_share_of_its_column() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    let stripe = StripeMap { unit_bytes: 4096, columns: 2 };
    let mut access = access(1);
    access.object.column = ColumnIndex(1);
    // Every third KiB of 96 KiB: the second column has a part of them.
    let list = Region { offset: 0, size: 1024, count: 32, stride: 3072 };
    let list = RegionList::new(vec![list]).unwrap();
    let mut pieces = Vec::new();
    let len = weir_layout::share(&list, stripe, ColumnIndex(1), &mut pieces).unwrap();
    let data = pattern(len as usize);
    client.send_write(&access, stripe, &list, &data);
    let reply: weir_wire::data::ObjectLen = client.conn.recv_reply(&client.wait).unwrap();
    assert_eq!(reply.len, pieces.last().unwrap().end());
    for flags in [
        ReadFlags::default(),
        ReadFlags { locked: true, ..ReadFlags::default() },
        ReadFlags { unchecked: true, ..ReadFlags::default() },
    ] {
        assert_eq!(client.read_with(&access, stripe, &list, flags).unwrap(), data);
    }
    let as_is = ReadFlags { as_is: true, ..ReadFlags::default() };
    let refused = client.read_with(&access, stripe, &list, as_is).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidArgument, "that is for data servers");
    // What lies between reads as zeros.
    let between = regions(7168, 16);
    let gap = client.read_with(&access, stripe, &between, ReadFlags::default()).unwrap();
    assert_eq!(gap, [0; 16]);
}

#[test]
fn truncation_cuts_and_fences_late_writes() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(10_000)).unwrap();
    let mut newer = access(1);
    newer.generation = Generation(2);
    let cut = TruncateRequest { access: newer.clone(), len: 3000 };
    assert_eq!(client.ask(&cut).unwrap().len, 3000);
    // A truncation never extends.
    newer.generation = Generation(3);
    let grow = TruncateRequest { access: newer.clone(), len: 1 << 40 };
    assert_eq!(client.ask(&grow).unwrap().len, 3000);
    let late = client.write(&access(1), 0, &pattern(100)).unwrap_err();
    assert_eq!(late.kind, ErrorKind::Stale, "{late}");
    client.write(&newer, 3000, &pattern(100)).unwrap();
    let stat = client.ask(&StatObjectRequest { access: newer }).unwrap();
    assert_eq!((stat.exists, stat.len, stat.generation), (true, 3100, Generation(3)));
    assert_eq!(server.counter("refused.stale_generation"), 1);
}

#[test]
fn a_fence_keeps_the_bytes_and_refuses_late_writes() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(10_000)).unwrap();
    let at = |file: u64, generation: u64| {
        let mut access = access(file);
        access.generation = Generation(generation);
        access
    };
    let fence = |client: &mut Client, file, generation| {
        let stat = client.ask(&FenceRequest { access: at(file, generation) }).unwrap();
        (stat.exists, stat.len, stat.generation.0)
    };
    assert_eq!(fence(&mut client, 1, 5), (true, 10_000, 5));
    let late = client.write(&at(1, 4), 0, &pattern(100)).unwrap_err();
    assert_eq!(late.kind, ErrorKind::Stale, "{late}");
    client.write(&at(1, 5), 10_000, &pattern(5)).unwrap();
    // Done again it finds what is newer, and a lower one takes nothing back.
    assert_eq!(fence(&mut client, 1, 5), (true, 10_005, 5));
    assert_eq!(fence(&mut client, 1, 3), (true, 10_005, 5));
    assert_eq!(client.read(&at(1, 1), 0, 10_000).unwrap(), pattern(10_000), "reads go on");
    // An object that nobody has written to, too.
    assert_eq!(fence(&mut client, 2, 5), (true, 0, 5));
    let late = client.write(&at(2, 4), 0, &pattern(100)).unwrap_err();
    assert_eq!(late.kind, ErrorKind::Stale, "{late}");
    assert!(client.read(&at(2, 5), 0, 100).unwrap().is_empty());
    // Who may only read fences nobody.
    let reader = access_with(TARGETS[0], 1, capability(1, weir_wire::Rights::READ));
    let refused = client.ask(&FenceRequest { access: reader }).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::BadCapability, "{refused}");
    drop(client);
    drop(server);
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    for file in [1, 2] {
        let late = client.write(&at(file, 4), 0, &pattern(100)).unwrap_err();
        assert_eq!(late.kind, ErrorKind::Stale, "after a restart: {late}");
    }
    assert_eq!(server.counter("op.fence"), 0);
}

#[test]
fn many_requests_in_flight_are_all_answered() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    let data = pattern(1 << 20);
    client.write(&access(1), 0, &data).unwrap();
    // Far more than may be in flight on one connection.
    let blocks: Vec<u64> = (0..500).map(|i| i * 7919 % 256).collect();
    for block in &blocks {
        client.send_read(&access(1), WHOLE, &regions(block * 4096, 4096), ReadFlags::default());
    }
    let mut answered = 0;
    for _ in &blocks {
        let header = client.conn.recv_head(&client.wait).unwrap();
        let mut block = vec![0; 4096];
        let mut slices = [std::io::IoSliceMut::new(&mut block)];
        client.conn.recv_payload(&header, &mut slices, &client.wait).unwrap();
        // The write had id 1.
        let index = blocks[header.request_id.0 as usize - 2] as usize;
        assert_eq!(block, data[index * 4096..][..4096]);
        answered += 1;
    }
    assert_eq!(answered, blocks.len());
    assert_eq!(server.counter("op.read"), 500);
    assert_eq!(server.counter("bytes.read"), 500 * 4096);
}

#[test]
fn data_damaged_on_its_way_is_refused_and_the_connection_goes_on() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(8192)).unwrap();
    let request = weir_wire::data::WriteRequest {
        access: access(1),
        stripe: WHOLE,
        flags: weir_wire::data::WriteFlags { sync: true, later: false },
        regions: regions(0, 4096),
        staged: None,
    };
    let header = weir_wire::Header::request(weir_wire::Op::Write, client.conn.next_request_id());
    let payload = vec![1; 4096];
    let slices = [std::io::IoSlice::new(&payload)];
    client.conn.send(header, &request, &[12345], &slices, &client.wait).unwrap();
    let error = client.conn.recv_reply::<weir_wire::data::ObjectLen>(&client.wait).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
    assert_eq!(client.read(&access(1), 0, 8192).unwrap(), pattern(8192));
    assert_eq!(server.counter("checksum.damaged_on_arrival"), 1);
}

#[test]
fn data_is_there_after_a_restart() {
    let (_guard, dir) = scratch();
    let data = pattern(200_000);
    {
        let server = Running::start(prepare(&dir));
        let mut client = server.connect();
        client.write(&access(1), 0, &data).unwrap();
        client.ask(&SyncRequest { access: access(1) }).unwrap();
    }
    let mut again = prepare(&dir);
    again.event_loops = 3;
    let server = Running::start(again);
    for _ in 0..4 {
        assert!(server.connect().read(&access(1), 0, 200_000).unwrap() == data);
    }
    assert!(server.counter("read.by_disk_thread") >= 1, "the first had to open the object");
    assert!(server.counter("read.from_page_cache") >= 3);
}
