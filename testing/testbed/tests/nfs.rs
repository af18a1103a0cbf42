//! A real NFS server, and a client with the kernel's cache.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use weir_testbed::{
    ETHERNET_QUEUE, Network, NfsClient, NfsServer, missing_for_models, missing_for_networks,
    missing_for_nfs,
};

const LINK: u64 = 1 << 30;
const BYTES: usize = 3_000_017;
/// Beyond 32 bits.
const FAR: u64 = 5 << 30;

fn bytes_between(network: &Network, work: impl FnOnce()) -> u64 {
    let before = network.counts(2).unwrap();
    work();
    network.counts(2).unwrap().since(before).in_bytes
}

#[test]
fn a_client_of_nfs_reads_each_byte_once_and_sees_what_was_written_before_it_opened_the_file() {
    let missing = missing_for_nfs().or_else(missing_for_networks).or_else(missing_for_models);
    if let Some(what) = missing {
        println!("skipped: needs {what}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [export, own, at] = ["export", "own", "at"].map(|name| dir.path().join(name));
    [&export, &own, &at].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let contents: Vec<u8> = (0..BYTES).map(|n| (n * 7 / 5) as u8).collect();
    fs::write(export.join("file"), &contents).unwrap();
    let large = File::create(export.join("large")).unwrap();
    large.write_all_at(b"far away", FAR).unwrap();

    let name = format!("weir-nfs{}", std::process::id());
    let network = Network::make(&name, &[LINK, LINK], ETHERNET_QUEUE).unwrap();
    let _server = NfsServer::start(&network, 1, &export, &own).unwrap();
    let mount = |keeps: bool| {
        let client = || NfsClient::mount(network.address(1), &export, &at, keeps);
        network.within(2, client).unwrap().unwrap()
    };
    let client = mount(true);
    let whole = || fs::read(at.join("file")).unwrap();
    let first = bytes_between(&network, || assert!(whole() == contents));
    assert!(first >= BYTES as u64, "{first} bytes for the first time");
    let again = bytes_between(&network, || assert!(whole() == contents));
    assert!(again < BYTES as u64 / 10, "{again} bytes for what the kernel has");

    let mut far = [0; 8];
    File::open(at.join("large")).unwrap().read_exact_at(&mut far, FAR).unwrap();
    assert_eq!(&far, b"far away");
    File::open(at.join("none")).unwrap_err();

    fs::write(export.join("file"), b"something else").unwrap();
    assert!(whole() == b"something else", "it shows what was there before");
    drop(client);

    // Without cached pages, a record costs its own bytes.
    fs::write(export.join("file"), &contents).unwrap();
    let record = |at: &Path| {
        let mut record = [0; 838];
        File::open(at.join("file")).unwrap().read_exact_at(&mut record, 1_000_000).unwrap();
        assert_eq!(record[..], contents[1_000_000..][..838]);
    };
    let client = mount(false);
    let alone = bytes_between(&network, || record(&at));
    drop(client);
    let _client = mount(true);
    let in_pages = bytes_between(&network, || record(&at));
    assert!(in_pages >= alone + 3_000, "{in_pages} with pages, {alone} without");
}
