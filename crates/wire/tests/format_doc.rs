//! `docs/format.md` says what the code does: its tables are compared with the
//! declarations in the sources, its offsets and examples with encoded bytes.
//! A change of the format that is not meant fails here.

mod declarations;

use declarations::{Declaration, declarations, doc_rows, hex_block, section};
use std::collections::BTreeSet;
use weir_layout::RegionList;
use weir_types::{
    ClientId, ColumnIndex, CopyIndex, Encode, ErrorKind, FileId, Generation, JobId, KeyGeneration,
    ObjectId, Rank, RequestId, SegmentIndex, Sequence, SessionId, StripeMap, TargetId, limits,
};
use weir_wire::data::{Access, ReadFlags, ReadRequest};
use weir_wire::frame::{FrameKind, MAGIC, VERSION, encode_head};
use weir_wire::handshake::{ClientHandshake, Hello, Identity};
use weir_wire::{Capability, HEADER_BYTES, Header, Key, Level, Op, Rights};

const DOC: &str = include_str!("../../../docs/format.md");

/// Every source that declares wire types.
const SOURCES: &[&str] = &[
    include_str!("../../types/src/id.rs"),
    include_str!("../../types/src/attr.rs"),
    include_str!("../../types/src/consistency.rs"),
    include_str!("../../types/src/layout.rs"),
    include_str!("../../types/src/restrictions.rs"),
    include_str!("../../layout/src/region.rs"),
    include_str!("../src/audit.rs"),
    include_str!("../src/capability.rs"),
    include_str!("../src/ticket.rs"),
    include_str!("../src/handshake.rs"),
    include_str!("../src/holders.rs"),
    include_str!("../src/data.rs"),
    include_str!("../src/meta.rs"),
    include_str!("../src/map.rs"),
    include_str!("../src/lease.rs"),
    include_str!("../src/lock.rs"),
    include_str!("../src/peer.rs"),
    include_str!("../src/protection.rs"),
    include_str!("../src/quota.rs"),
    include_str!("../src/targets.rs"),
];

/// Types whose codec is written by hand instead of by `codec_struct!`.
const BY_HAND: &[&str] =
    &["Caller", "Segment", "StripeMap", "Region", "RegionList", "SealedTicket", "Capability"];

#[test]
fn the_header_fields_are_where_the_table_says() {
    let header = Header {
        keep: 0,
        kind: FrameKind::Reply,
        op: Op::Heartbeat,
        status: Some(ErrorKind::OutOfRange),
        body_len: 0,
        checks: 0,
        payload_len: 0,
        request_id: RequestId(0x1111_1111_1111_1111),
        sequence: Sequence(0x2222_2222_2222_2222),
        job: JobId(0x3333_3333_3333_3333),
        rank: Rank(0x4444_4444),
        progress: 0x5555_5555,
        in_flight: 0x6666,
        queue_depth: 0x7777,
        work: 0x8888_8888,
    };
    let mut bytes = Vec::new();
    encode_head(&mut bytes, header, &[7u8; 9], &[1, 2, 3], 0x88);
    let mut next = 0;
    for row in doc_rows(section(DOC, "### Header")) {
        let (offset, len): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        assert_eq!(offset, next, "field {} leaves a gap or overlaps", row[2]);
        next = offset + len;
        let expected: u64 = match row[2].as_str() {
            "magic" => u64::from(MAGIC),
            "version" => u64::from(VERSION),
            "kind" => 2,
            "flags" => 0,
            "op" => Op::Heartbeat as u64,
            "status" => ErrorKind::OutOfRange as u64,
            "body_len" => 9,
            "checks" => 3,
            "payload_len" => 0x88,
            "request_id" => header.request_id.0,
            "sequence" => header.sequence.0,
            "job" => header.job.0,
            "rank" => u64::from(header.rank.0),
            "progress" => u64::from(header.progress),
            "in_flight" => u64::from(header.in_flight),
            "queue_depth" => u64::from(header.queue_depth),
            "work" => 0x8888_8888,
            "mac" => {
                assert_eq!((offset, len), (HEADER_BYTES - 16, 16));
                assert_eq!(bytes[offset..next], [0; 16]);
                continue;
            }
            other => panic!("the header has no field `{other}`"),
        };
        assert_eq!(bytes[offset..next], expected.to_le_bytes()[..len], "field {}", row[2]);
    }
    assert_eq!(next, HEADER_BYTES);
    assert!(DOC.contains(&format!("\nProtocol version {VERSION}.")));
    assert!(DOC.contains(&format!("| `version` | protocol version, {VERSION} |")));
}

#[test]
fn every_operation_is_listed_with_its_code() {
    let documented: BTreeSet<_> = doc_rows(section(DOC, "### Operations"))
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let real = Op::ALL.iter().map(|op| (format!("0x{:03x}", *op as u16), format!("{op:?}")));
    assert_eq!(documented, real.collect());
}

#[test]
fn every_error_is_listed_with_code_errno_retry_and_text() {
    let documented: Vec<_> = doc_rows(section(DOC, "## Errors")).collect();
    assert_eq!(documented.len(), ErrorKind::ALL.len());
    for (row, kind) in documented.iter().zip(ErrorKind::ALL) {
        let code = (*kind as u16).to_string();
        assert_eq!((row[0].as_str(), row[1].as_str()), (code.as_str(), &*format!("{kind:?}")));
        assert_eq!(row[2].split(' ').next_back(), Some(kind.errno().to_string().as_str()));
        assert_eq!(
            (row[3].as_str(), row[4].as_str()),
            (&*format!("{:?}", kind.retry()), kind.text())
        );
    }
}

#[test]
fn every_record_tag_and_id_is_listed_as_it_is_declared() {
    let documented: BTreeSet<&str> = DOC.lines().collect();
    let mut missing = Vec::new();
    let mut known = BTreeSet::new();
    for declaration in SOURCES.iter().flat_map(|source| declarations(source, BY_HAND)) {
        let line = match &declaration {
            Declaration::Record { name, fields } => format!("| `{name}` | {fields} |"),
            Declaration::Request { name, op, fields, reply } => {
                let op = Op::ALL.iter().find(|o| format!("{o:?}") == *op).unwrap();
                format!("| `{name}` | 0x{:03x} | {fields} | `{reply}` |", *op as u16)
            }
            Declaration::Tag { name, values } => format!("| `{name}` | `{values}` |"),
            Declaration::Id { name, number } => format!("| `{name}` | {number} |"),
        };
        if !documented.contains(line.as_str()) {
            missing.push(line.clone());
        }
        known.insert(line);
    }
    assert!(missing.is_empty(), "docs/format.md lacks:\n{}", missing.join("\n"));
    assert!(known.len() > 90, "only {} declarations were found", known.len());
    // The document lists nothing that the sources lack.
    for heading in
        ["## Handshake", "## Common types", "## Layouts", "## Capabilities", "## Messages"]
    {
        for part in DOC.split("\n## ").filter(|part| format!("## {part}").starts_with(heading)) {
            for row in part.lines().filter(|l| l.starts_with("| `")) {
                assert!(known.contains(row), "docs/format.md has, but the code has not: {row}");
            }
        }
    }
}

#[test]
fn every_limit_is_listed_with_its_value() {
    let rows: Vec<_> = doc_rows(section(DOC, "## Limits")).collect();
    let value = |name: &str| {
        let row = rows.iter().find(|row| row[0] == name);
        row.map(|row| row[1].parse::<u64>().unwrap())
    };
    macro_rules! limits {
        ($($name:ident)*) => {{
            $(assert_eq!(value(stringify!($name)), Some(limits::$name as u64), stringify!($name));)*
            [$(stringify!($name)),*]
        }};
    }
    let checked = limits!(
        BLOCK_BYTES BLOCK MAX_PAYLOAD_BYTES MAX_BODY_BYTES MAX_CHECKSUMS MAX_LIST_LEN MAX_REGIONS
        MAX_PIECES MAX_NAME_BYTES MAX_HOST_BYTES MAX_DOMAIN_BYTES MAX_SYMLINK_BYTES MAX_XATTR_BYTES MAX_LINKS MAX_FILE_BYTES
        MIN_STRIPE_UNIT_BYTES MAX_STRIPE_UNIT_BYTES MAX_COLUMNS MIN_CODED_COLUMNS MAX_CODED_COLUMNS MAX_PARITIES NEVER_S MAX_SEGMENTS SEGMENT_PAGE MAX_SLOTS
        MAX_IN_FLIGHT_PER_CONNECTION MAX_GROUPS MAX_WRITTEN_SEGMENTS MAX_WRITTEN_RANGES MAX_ACCESSED MAX_OBJECT_PAGE
        MAX_SCRUB_BYTES MAX_ALLOCATE_BYTES MAX_COPY_BYTES MAX_COPY_PIECES MAX_REPAIR_BYTES MAX_PAST
        MAX_LOADS MAX_FIND_COPIES MAX_LACKING_RANGES MAX_LACKING_OBJECTS
        MAX_READDIR_ENTRIES MAX_READDIR_LAYOUT_BYTES MAX_ENTRY_BYTES
    );
    let declared = include_str!("../../types/src/limits.rs").matches("\npub const ").count();
    assert_eq!((declared, rows.len()), (checked.len(), checked.len()));
}

#[test]
fn every_purpose_of_a_key_is_listed() {
    let code = [
        include_str!("../src/key.rs"),
        include_str!("../src/auth.rs"),
        include_str!("../src/handshake.rs"),
        include_str!("../src/holders.rs"),
        include_str!("../src/capability.rs"),
        include_str!("../src/ticket.rs"),
    ];
    let used: BTreeSet<&str> = code
        .iter()
        .flat_map(|source| source.split('"').filter(|text| text.starts_with("weir 1 ")))
        .collect();
    let rows: Vec<_> = doc_rows(section(DOC, "## Keys")).collect();
    assert_eq!(rows.iter().map(|row| row[0].as_str()).collect::<BTreeSet<_>>(), used);
}

/// Compares encoded bytes with an example of the document.
fn assert_example(name: &str, bytes: &[u8]) {
    let documented = hex_block(DOC, name);
    let rows: Vec<String> =
        bytes.chunks(16).map(|row| row.iter().map(|b| format!("{b:02x}")).collect()).collect();
    assert!(
        documented == bytes,
        "example `{name}` of docs/format.md should be\n{}",
        rows.join("\n")
    );
}

fn capability() -> Capability {
    Capability {
        file: FileId(0x1122),
        session: SessionId(0x33),
        user: 0x44,
        rights: Rights::READ_WRITE,
        version: 2,
        key_generation: KeyGeneration(1),
        expires_unix_ms: 1_700_000_000_000,
    }
}

#[test]
fn the_examples_are_what_is_written() {
    let mut header = Header::request(Op::Read, RequestId(7));
    (header.sequence, header.job, header.rank) = (Sequence(5), JobId(9), Rank(3));
    let mut head = Vec::new();
    encode_head(&mut head, header, &[0u8; 12], &[0, 0], 0);
    assert_example("header", &head[..HEADER_BYTES]);

    let mac = capability().sign(TargetId(4), &Key::from_bytes([7; 32]));
    assert_example("capability", &capability().to_bytes());
    assert_example("capability-mac", &mac.to_bytes());

    let hello = Hello {
        version: VERSION,
        identity: Identity::Client(ClientId(1)),
        nonce: [1; 32],
        session: SessionId(0),
        name: "golden".into(),
        host: "node".into(),
        protection: Level::Data,
    };
    assert_example("hello", &ClientHandshake::start(Key::from_bytes([7; 32]), &hello).1);

    let object = ObjectId {
        file: FileId(0x1122),
        segment: SegmentIndex(0),
        column: ColumnIndex(1),
        copy: CopyIndex(0),
    };
    let read = ReadRequest {
        access: Access {
            target: TargetId(4),
            object,
            generation: Generation(1),
            capability: capability(),
            mac,
            copies: Vec::new(),
            relay: None,
        },
        stripe: StripeMap { unit_bytes: 65_536, columns: 4 },
        flags: ReadFlags::default(),
        regions: RegionList::contiguous(65_536, 8192).unwrap(),
    };
    assert_example("read-request", &read.to_bytes());
}
