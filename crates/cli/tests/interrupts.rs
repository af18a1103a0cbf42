//! Calls that a signal interrupts.

use crate::harness::Place;
use crate::library;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsRawFd;
use weir_client::{Context, CreateOptions};
use weir_types::{ErrorKind, FileId};

/// Files that are removed until the server has answered one of them soon enough.
const FILES: usize = 60;

#[test]
fn who_holds_a_file_learns_the_end_of_its_removal_although_it_is_interrupted() {
    let place = Place::new();
    let cluster = place.up("ends", &["--targets", "1"]);
    let client = library::client(&cluster, false);
    let (ctx, options) = (Context::root(), CreateOptions::default());
    // It is there before the call begins.
    let signal = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
    let interrupted = Context { interrupt: Some(signal.as_raw_fd()), ..ctx.clone() };
    let mut held = None;
    for file in 0..FILES {
        let name = format!("f{file}").into_bytes();
        let (open, _) = client.create(&ctx, FileId::ROOT, &name, &options).unwrap();
        let id = open.id();
        open.close(&ctx).unwrap();
        match client.unlink_and_hold(&interrupted, FileId::ROOT, &name) {
            Ok(left) => {
                held = Some((id, left));
                break;
            }
            // The server has not answered within a second.
            Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
        }
    }
    let (id, left) = held.expect("one of them is answered within a second");
    assert_eq!(left.map(|attr| (attr.file, attr.nlink)), Some((id, 0)));
    assert!(client.getattr(&ctx, id).is_ok(), "it is held");
    // A client that holds nothing gives up, unless the answer is already there.
    let (_, _) = client.create(&ctx, FileId::ROOT, b"other", &options).unwrap();
    if let Err(given_up) = client.unlink(&interrupted, FileId::ROOT, b"other") {
        assert_eq!(given_up.kind, ErrorKind::Interrupted, "{given_up}");
    }
}
