//! The arguments that mount(8) passes to the helper of a file system type (see "External helpers"
//! there).

use clap::{Parser, ValueHint};
use std::path::PathBuf;

/// Mount a Weir for mount(8) and /etc/fstab
#[derive(Parser)]
#[command(name = "mount.fuse.weir", version = crate::version::LINE)]
#[command(
    after_help = "mount(8) runs this program for `mount -t fuse.weir SOURCE DIR -o OPTIONS`, \
    and for a line in /etc/fstab:\n\n    weir:/etc/weir/client.toml /mnt/weir fuse.weir \
    defaults,_netdev,nofail 0 0\n\nThe options are those of `weir mount`, and those that mount(8) \
    lists for every file system. `umount DIR` or `weir umount DIR` unmounts it."
)]
pub struct MountHelper {
    /// weir:FILE, the credential of a client; weir:DIR, the state directory of a cluster on this
    /// machine; or the name of a cluster on this machine
    pub source: String,
    /// The directory to mount on
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Ignore unknown options
    #[arg(short = 's')]
    pub sloppy: bool,
    /// Do everything but mount
    #[arg(short = 'f')]
    pub fake: bool,
    /// Print what is mounted
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Mount in this mount namespace
    #[arg(short = 'N', value_name = "FILE")]
    pub namespace: Option<PathBuf>,
    /// Accepted because mount(8) passes it; has no effect, because there is no /etc/mtab
    #[arg(short = 'n')]
    _no_mtab: bool,
    /// Accepted because mount(8) passes it; has no effect, because there is only one type
    #[arg(short = 't', value_name = "TYPE")]
    _kind: Option<String>,
}
