//! Makes the metadata of a new file system, and checks that of an existing one.

use crate::ops::root::{self, Root};
use crate::schema::{self, Age, ClientRecord, ClientStanding, FormatRecord, key};
use weir_metastore::{Engine, Sequence, Tx, transact};
use weir_types::codec::Bytes;
use weir_types::{ClientId, Error, ErrorKind, LayoutSpec, Result, Timestamp};
use weir_wire::key::MasterKey;

/// Properties of a new file system.
#[derive(Clone, Debug)]
pub struct NewFileSystem {
    /// Id of the cluster.
    pub cluster: [u8; 16],
    /// The first client, an administrator of the cluster.
    pub administrator: ClientId,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permission bits of the root directory.
    pub root_mode: u16,
    /// Layout of files whose directories have no default layout.
    pub default_layout: LayoutSpec,
}

impl NewFileSystem {
    /// A root directory of the superuser with mode 0755, and files striped over all targets in
    /// units of 64 KiB.
    pub fn new(cluster: [u8; 16], administrator: ClientId) -> Self {
        Self {
            cluster,
            administrator,
            root_uid: 0,
            root_gid: 0,
            root_mode: 0o755,
            default_layout: LayoutSpec::default(),
        }
    }
}

/// Makes the root directory and all other records that a metadata server needs to start, and waits
/// until they are durable.
///
/// # Errors
/// `Exists` if the engine holds a file system already; `InvalidArgument` for an invalid default
/// layout; those of the engine.
pub fn initialize(
    engine: &mut dyn Engine,
    master: &MasterKey,
    new: &NewFileSystem,
    now: Timestamp,
) -> Result<()> {
    weir_layout::check_spec(&new.default_layout)?;
    let format = FormatRecord {
        cluster: new.cluster,
        key_check: key_check(master, &new.cluster),
        default_layout: new.default_layout.clone(),
    };
    let admin = ClientRecord {
        standing: ClientStanding::Administrator,
        name: "administrator".into(),
        ..ClientRecord::default()
    };
    let root = Root {
        uid: new.root_uid,
        gid: new.root_gid,
        mode: new.root_mode,
        default_layout: new.default_layout.clone(),
        now,
    };
    // Without a format it may be what is left of an import.
    let used = engine.sequence() > Sequence::ZERO;
    transact(engine, |tx| {
        if used || tx.get(key::FORMAT)?.is_some() {
            return Err(Error::new(ErrorKind::Exists, "the metadata directory is in use already"));
        }
        tx.put(key::FORMAT, &schema::encode_format(&format, false))?;
        tx.put(&key::client(new.administrator), &schema::encode(&admin))?;
        root::run(tx, &root).map_err(|fault| match fault {
            crate::ops::Fault::Refused(error) => error,
            crate::ops::Fault::Engine(error) => error.into(),
        })
    })?;
    engine.sync()
}

/// Reads the format record, checks the master key against it, and returns whether the store is up
/// to date.
pub(crate) fn check_format(engine: &dyn Engine, master: &MasterKey) -> Result<(FormatRecord, Age)> {
    let Some(bytes) = Tx::new(engine).get(key::FORMAT)? else {
        return Err(Error::new(
            ErrorKind::NotFound,
            "the metadata directory holds no file system: make one with \
             `weir up`, or correct the path",
        ));
    };
    let (format, age) = schema::decode_format(&bytes)?;
    if format.key_check != key_check(master, &format.cluster) {
        return Err(Error::new(
            ErrorKind::AuthFailed,
            "the master key is not the one that this metadata directory was made with: correct \
             the path of the key file",
        ));
    }
    Ok((format, age))
}

/// Upgrades a store that an older program has made.
pub(crate) fn upgrade(engine: &mut dyn Engine, format: &FormatRecord, age: Age) -> Result<()> {
    match age {
        Age::Current => Ok(()),
        Age::NoDirectories => crate::ops::links::upgrade(engine, format),
        // Those that are changed from now on are longer: older programs have to be told so.
        Age::ShorterInodes => rewrite(engine, format, false),
        Age::NoHoles { quotas } => rewrite(engine, format, quotas),
    }
}

fn rewrite(engine: &mut dyn Engine, format: &FormatRecord, quotas: bool) -> Result<()> {
    let record = schema::encode_format(format, quotas);
    transact(engine, |tx| Ok::<_, Error>(tx.put(key::FORMAT, &record)?))?;
    engine.sync()
}

fn key_check(master: &MasterKey, cluster: &[u8; 16]) -> Bytes {
    Bytes(master.0.mac("weir 1 master key check", &[cluster]).0.to_vec())
}
