//! Connections to data servers: made when a file is opened, or when it is first used.

use crate::harness::{Place, eventually};
use crate::library::{config, counter};
use weir_client::{Client, ClientConfig, Context, CreateOptions};
use weir_types::{FileId, LayoutSpec};
use weir_wire::Rights;

#[test]
fn a_file_that_is_opened_finds_connections_unless_it_is_lazy() {
    let place = Place::new();
    let cluster = place.up("connected", &["--targets", "4"]);
    let ctx = Context::root();
    let connect = |lazy| Client::connect(ClientConfig { lazy, ..config(&cluster) }).unwrap();
    let maker = connect(true);
    let spec = LayoutSpec { base: Some(0), count: 3, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(spec), ..CreateOptions::default() };
    let (file, _) = maker.create(&ctx, FileId::ROOT, b"f", &options).unwrap();
    let made = |client: &Client| counter(client, "data_connections");

    let eager = connect(false);
    let (opened, _) = eager.open(&ctx, file.id(), Rights::READ).unwrap();
    eventually("one connection to each of its three servers", || made(&eager) == 3);
    // Nothing more when it is opened again.
    let (again, _) = eager.open(&ctx, file.id(), Rights::READ).unwrap();
    let found = again.read_at(&ctx, 0, &mut [0; 10]).unwrap();
    assert_eq!((found, made(&eager)), (0, 3));
    opened.close(&ctx).unwrap();
    again.close(&ctx).unwrap();

    let lazy = connect(true);
    let (opened, _) = lazy.open(&ctx, file.id(), Rights::WRITE).unwrap();
    assert_eq!(made(&lazy), 0);
    opened.write_at(&ctx, 0, b"bytes").unwrap();
    opened.sync(&ctx).unwrap();
    assert_eq!(made(&lazy), 1);
    opened.close(&ctx).unwrap();
}
