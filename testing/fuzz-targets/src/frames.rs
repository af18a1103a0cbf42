//! Frames, the handshake, capabilities, tickets and keys.

use crate::random::Gen;
use crate::sample::{Sample, key};
use weir_types::{Decode, Encode, ErrorKind, RequestId, Result, SessionId};
use weir_wire::capability::{Capability, Check, Rights};
use weir_wire::frame::{
    FrameKind, HEADER_BYTES, Header, VERSION, decode_checks, encode_head, peer_version,
};
use weir_wire::handshake::{ClientHandshake, Hello, Identity, ServerHandshake};
use weir_wire::private::{Initiator, MAX_RECORD_BYTES, MAX_SEALED_BYTES, Records, respond};
use weir_wire::ticket::{SealedTicket, Ticket};
use weir_wire::{Key, Level, Mac, Op, Opener, Sealer};

/// Bytes of a header that come before the MAC.
const BEFORE_MAC: usize = HEADER_BYTES - 16;
/// Frames longer than this are not rebuilt: it shows nothing new.
const MAX_REBUILT_BYTES: usize = 4096;

/// Encodes a body of a known length.
struct Zeros(usize);

impl Encode for Zeros {
    fn encode(&self, out: &mut Vec<u8>) {
        out.resize(out.len() + self.0, 0);
    }
}

fn split(data: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let (raw, rest) = data.split_first_chunk::<HEADER_BYTES>()?;
    let header = Header::parse(raw).ok()?;
    let (meta, rest) = rest.split_at_checked(header.meta_len())?;
    Some((header, &meta[..header.body_len as usize], rest))
}

/// Reads a header: lengths are within their limits, and it can be written again.
pub(crate) fn header(data: &[u8]) {
    let version = peer_version(data);
    let Some(raw) = data.first_chunk::<HEADER_BYTES>() else { return };
    let Ok(header) = Header::parse(raw) else { return };
    assert_eq!(version, Some(VERSION));
    if header.meta_len() > MAX_REBUILT_BYTES {
        return;
    }
    let mut again = Vec::new();
    let body = Zeros(header.body_len as usize);
    let checks = vec![0; header.checks as usize];
    encode_head(&mut again, header, &body, &checks, header.payload_len as usize);
    assert_eq!(again[..BEFORE_MAC], raw[..BEFORE_MAC]);
}

fn any_header(g: &mut Gen) -> Header {
    let mut header = Header::request(g.pick(Op::ALL), RequestId(g.number()));
    if g.one_in(2) {
        header.kind = FrameKind::Reply;
        header.status = g.one_in(3).then(|| ErrorKind::sample(g));
    }
    header.sequence.0 = g.number();
    header.job.0 = g.number();
    header.rank.0 = u32::sample(g);
    header.progress = u32::sample(g);
    header.in_flight = u16::sample(g);
    header.queue_depth = u16::sample(g);
    header.work = u32::sample(g);
    header
}

pub(crate) fn header_example(g: &mut Gen) -> Vec<u8> {
    let mut out = Vec::new();
    let body = Zeros(g.below(100) as usize);
    let checks: Vec<u32> = Sample::sample(g);
    encode_head(&mut out, any_header(g), &body, &checks, g.below(4 << 20) as usize);
    out
}

/// Reads the checksums of a frame.
pub(crate) fn checks(data: &[u8]) {
    let mut checks = Vec::new();
    decode_checks(data, &mut checks);
    assert_eq!(checks.len(), data.len() / 4);
}

pub(crate) fn checks_example(g: &mut Gen) -> Vec<u8> {
    g.bytes(64)
}

/// Opens a sealed frame: only what the holder of the key sealed passes.
pub(crate) fn sealed(data: &[u8]) {
    let mut head = data.to_vec();
    if Opener::new(key()).open(&mut head).is_ok() {
        Sealer::new(key()).seal(&mut head);
        assert_eq!(head, data, "a frame that nobody sealed was accepted");
    }
}

/// Opens a sealed frame with its payload and the code of it: only what the holder of the key sealed
/// passes.
pub(crate) fn coded_payload(data: &[u8]) {
    let Some((header, ..)) = split(data) else { return };
    let mut opener = Opener::at(Level::Data, key());
    let Some((head, payload)) = data.split_at_checked(HEADER_BYTES + opener.meta_len(&header))
    else {
        return;
    };
    let Some(payload) = payload.get(..header.payload_len as usize) else { return };
    let mut opened = head.to_vec();
    let once = || std::iter::once(payload);
    if opener.open(&mut opened).is_ok() && opener.check_payload(&opened, once()).is_ok() {
        let mut again = head[..HEADER_BYTES + header.meta_len()].to_vec();
        Sealer::at(Level::Data, key()).seal_with(&mut again, 0, once());
        assert_eq!(again, head, "a payload that nobody sealed was accepted");
    }
}

pub(crate) fn coded_payload_example(g: &mut Gen) -> Vec<u8> {
    let payload = g.bytes(200);
    let mut out = Vec::new();
    encode_head(&mut out, any_header(g), &Zeros(9), &[1, 2], payload.len());
    Sealer::at(Level::Data, key()).seal_with(&mut out, 0, std::iter::once(&payload[..]));
    out.extend(payload);
    out
}

pub(crate) fn sealed_example(g: &mut Gen) -> Vec<u8> {
    let mut head = header_example(g);
    Sealer::new(key()).seal(&mut head);
    head
}

const SERVER_NONCE: [u8; 32] = [2; 32];

fn hello() -> Hello {
    Hello {
        version: VERSION,
        identity: Identity::Client(weir_types::ClientId(1)),
        nonce: [1; 32],
        session: SessionId(0),
        name: "fuzz".into(),
        host: "node".into(),
        protection: Level::Data,
    }
}

fn secret() -> Result<[u8; 32]> {
    Ok([3; 32])
}

/// What a server knows of a client: its key, and a level for the name that it gives itself.
fn known(hello: &Hello) -> Result<(Key, Level)> {
    Ok((key(), Level::ALL[hello.name.len() % 3]))
}

/// A server meets two frames: a Hello and a Proof.
pub(crate) fn server_handshake(data: &[u8]) {
    let Some((header, body, rest)) = split(data) else { return };
    let met = ServerHandshake::on_hello(&header, body, SERVER_NONCE, known);
    let Ok((server, challenge)) = met else { return };
    assert_eq!(server.hello.to_bytes(), body);
    let Some((header, body, _)) = split(rest) else { return };
    let said = server.hello.clone();
    if let Ok(accepted) = server.on_proof(&header, body, secret) {
        // Then the proof is the one that the holder of the key would send.
        let (client, _) = ClientHandshake::start(key(), &said);
        let proof = split(&challenge).and_then(|(h, b, _)| client.on_challenge(&h, b, secret).ok());
        let proof = proof.expect("our own challenge is accepted");
        assert_eq!(&proof.frame[HEADER_BYTES..], body, "a wrong proof was accepted");
        assert!(accepted.level >= said.protection && accepted.level == proof.level);
    }
}

pub(crate) fn server_handshake_example(g: &mut Gen) -> Vec<u8> {
    let hello = if g.one_in(2) { hello() } else { Hello { version: VERSION, ..Sample::sample(g) } };
    let (client, mut out) = ClientHandshake::start(key(), &hello);
    let (header, body, _) = split(&out).expect("our own frame");
    let challenge = ServerHandshake::on_hello(&header, body, SERVER_NONCE, known);
    let (_, challenge) = challenge.expect("our own hello is accepted");
    let (header, body, _) = split(&challenge).expect("our own frame");
    let proof = client.on_challenge(&header, body, secret);
    out.extend(proof.expect("our own challenge is accepted").frame);
    out
}

/// A client meets a Challenge, or a refusal.
pub(crate) fn client_handshake(data: &[u8]) {
    let Some((header, body, _)) = split(data) else { return };
    let (client, sent) = ClientHandshake::start(key(), &hello());
    if let Ok(proved) = client.on_challenge(&header, body, secret) {
        let nonce: [u8; 32] = body[..32].try_into().expect("a challenge is 49 bytes");
        let (header, hello_body, _) = split(&sent).expect("our own frame");
        let with_level = |_: &Hello| Ok((key(), proved.level));
        let ours = ServerHandshake::on_hello(&header, hello_body, nonce, with_level);
        let (_, challenge) = ours.expect("our own hello is accepted");
        assert_eq!(&challenge[HEADER_BYTES..], body, "a wrong challenge was accepted");
    }
}

pub(crate) fn client_handshake_example(g: &mut Gen) -> Vec<u8> {
    if g.one_in(4) {
        return weir_wire::handshake::refusal(&Sample::sample(g));
    }
    let (_, sent) = ClientHandshake::start(key(), &hello());
    let (header, body, _) = split(&sent).expect("our own frame");
    let level = Level::sample(g);
    let with_level = |_: &Hello| Ok((key(), level));
    let met = ServerHandshake::on_hello(&header, body, Sample::sample(g), with_level);
    met.expect("our own hello is accepted").1
}

/// Both ends of the records of a private connection, always the same.
fn records() -> (Records, Records) {
    let (initiator, message) = Initiator::begin(&key(), [1; 32]).expect("our own key");
    let (records, answer) = respond(&key(), [2; 32], &message).expect("our own message");
    (initiator.finish(&answer).expect("our own answer"), records)
}

/// Reads the records of a private connection: only what the peer sealed is opened.
pub(crate) fn private_records(data: &[u8]) {
    let (mut sender, mut receiver) = records();
    let mut rest = data;
    while let Ok(Some((len, inside))) = Records::next(rest) {
        assert!(len <= MAX_SEALED_BYTES && inside <= MAX_RECORD_BYTES);
        let (record, later) = rest.split_at(len);
        let mut plain = vec![0; inside];
        if receiver.open(record, &mut plain).is_err() {
            return;
        }
        let mut again = Vec::new();
        sender.seal([&plain[..]].into_iter(), usize::MAX, &mut again).expect("it is sealed");
        assert_eq!(again, record, "a record that nobody sealed was accepted");
        rest = later;
    }
}

pub(crate) fn private_records_example(g: &mut Gen) -> Vec<u8> {
    let (mut sender, mut out) = (records().0, Vec::new());
    for _ in 0..g.below(4) {
        let plain = g.bytes(300);
        sender.seal([&plain[..]].into_iter(), usize::MAX, &mut out).expect("it is sealed");
    }
    out
}

/// Meets the messages with which both ends of a private connection agree on keys.
pub(crate) fn key_agreement(data: &[u8]) {
    if let Ok((_, answer)) = respond(&key(), [2; 32], data) {
        let (_, message) = Initiator::begin(&key(), [1; 32]).expect("our own key");
        // Another key pair of the client may be meant, but nothing else than a message of one.
        assert_eq!((data.len(), answer.len()), (message.len(), message.len()));
    }
    let (initiator, _) = Initiator::begin(&key(), [1; 32]).expect("our own key");
    assert!(initiator.finish(data).is_err() || data.len() == 48);
}

pub(crate) fn key_agreement_example(g: &mut Gen) -> Vec<u8> {
    let (_, message) = Initiator::begin(&key(), [1; 32]).expect("our own key");
    match g.one_in(2) {
        true => message,
        false => respond(&key(), Sample::sample(g), &message).expect("our own message").1,
    }
}

/// Decodes a capability with its MAC and checks it as a data server does:
/// what passes is what the metadata server signed.
pub(crate) fn capability(data: &[u8]) {
    let Ok((capability, mac)) = <(Capability, Mac)>::from_bytes(data) else { return };
    assert_eq!((&capability, &mac).to_bytes(), data);
    let target_key = key();
    let check = Check {
        target: weir_types::TargetId(1),
        target_key: &target_key,
        session: capability.session,
        file: capability.file,
        needed: Rights::READ,
        now_unix_ms: 1,
    };
    if capability.check(&mac, &check).is_ok() {
        assert_eq!(capability.sign(check.target, &target_key), mac);
        assert!(capability.rights.allow(Rights::READ) && capability.expires_unix_ms > 1);
    }
}

pub(crate) fn capability_example(g: &mut Gen) -> Vec<u8> {
    let capability = Capability::sample(g);
    let mac = capability.sign(weir_types::TargetId(1), &key());
    (capability, mac).to_bytes()
}

/// Decodes a sealed ticket and opens it: any key gives a key, the right one
/// the right one.
pub(crate) fn sealed_ticket(data: &[u8]) {
    let Ok(sealed) = SealedTicket::from_bytes(data) else { return };
    assert_eq!(sealed.to_bytes(), data);
    let opened = sealed.open(&key());
    let ours = SealedTicket::seal(sealed.ticket.clone(), &key(), &key());
    assert_eq!(opened == sealed.ticket.key(&key()), ours == sealed);
}

pub(crate) fn sealed_ticket_example(g: &mut Gen) -> Vec<u8> {
    SealedTicket::seal(Ticket::sample(g), &key(), &key()).to_bytes()
}

/// Reads a key file: 64 hexadecimal digits, and nothing else.
pub(crate) fn key_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(key) = Key::from_hex(text) {
        assert_eq!(key.to_hex(), text.trim().to_ascii_lowercase());
    }
}

pub(crate) fn key_file_example(g: &mut Gen) -> Vec<u8> {
    let hex = Key::from_bytes(Sample::sample(g)).to_hex();
    format!("{hex}{}", g.pick(&["", "\n"])).into_bytes()
}
