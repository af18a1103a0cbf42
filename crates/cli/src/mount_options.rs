//! Mount options, for `weir mount -o`, `mount -t fuse.weir`, /etc/fstab and the configuration file.

use crate::failure::{Done, Failure};
use crate::text::parse_size;
use rustix::mount::MountFlags;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use weir_client::{Consistency, ReadPolicy, Transport};
use weir_fuse::Config;
use weir_mount::{AccessTimes, Options};
use weir_types::ErrorKind;
use weir_wire::Level;

/// The options of a mount.
pub struct MountOptions {
    /// Options for the kernel.
    pub fuse: Config,
    /// Options of the file system.
    pub weir: Options,
    /// How servers are reached.
    pub transport: Transport,
    /// The lowest level of protection of connections, if it is above that of the credential.
    pub protection: Level,
    /// Which copy of a file is read if it has several.
    pub read_policy: ReadPolicy,
    /// Whether read-ahead and write-behind are off.
    pub no_cache: bool,
    /// Whether connections to the servers of a file wait for its first read or write.
    pub lazy: bool,
    /// How long a step of a call waits for a server, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The address for metrics, unless it is that of the cluster.
    pub metrics: Option<SocketAddr>,
}

/// The names of the options. docs/operating.md describes them.
pub const KNOWN: &str = "ro, rw, allow_other, allow_root_only, default_permissions, suid, nosuid, \
    dev, nodev, exec, noexec, relatime, norelatime, atime, noatime, strictatime, nostrictatime, \
    diratime, nodiratime, remount, nocache, lazy, direct_io, tcp, consistency=strict|relaxed|none, \
    read_policy=POLICY, protection=args|data|private, ttl=SECONDS, timeout=SECONDS, max_io=SIZE, \
    read_ahead=SIZE, \
    metrics=ADDRESS:PORT";
/// How long a step of a call may wait for a server, in seconds.
const TIMEOUT_SECONDS: RangeInclusive<u64> = 1..=3600;
/// The most that the kernel may be told to read ahead.
const MAX_READ_AHEAD_BYTES: u64 = 1 << 30;

impl MountOptions {
    /// Parses options. Each text may have several, separated by commas.
    pub fn parse(options: &[String]) -> Done<Self> {
        let mut all = Self::none_given();
        for option in options.iter().flat_map(|o| o.split(',')).filter(|o| !o.is_empty()) {
            if !all.set(option)? {
                let what = ErrorKind::InvalidArgument.text();
                return Err(Failure::new(format!("mount option {option}: {what}"))
                    .hint(format!("known options: {KNOWN}")));
            }
        }
        if all.fuse.read_only {
            all.weir.access_times = AccessTimes::Never;
        }
        Ok(all)
    }

    fn none_given() -> Self {
        let root = rustix::process::geteuid().is_root();
        let fuse = Config {
            // Root mounts for everyone, with devices and setuid programs, as for any other file
            // system.
            allow_other: root,
            suid: root,
            dev: root,
            // Otherwise the kernel would drop a file's pages whenever its modification time has
            // changed, also during a write of this mount. A reader could then fill the page with
            // the old bytes, and others would read these after the write has returned. Instead,
            // pages are dropped at open.
            explicit_inval_data: true,
            posix_locks: true,
            flock_locks: true,
            posix_acl: true,
            ..Config::default()
        };
        Self {
            fuse,
            weir: Options::default(),
            transport: Transport::Auto,
            protection: Level::Args,
            read_policy: ReadPolicy::Proportional,
            no_cache: false,
            lazy: false,
            timeout_ms: None,
            metrics: None,
        }
    }

    /// Whether an option of this name exists, whatever its value.
    pub fn knows(option: &str) -> bool {
        !matches!(Self::none_given().set(option), Ok(false))
    }

    /// Whether an option has no effect on a mount: it is meant for mount(8), or always in effect.
    pub fn says_nothing(option: &str) -> bool {
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        is_for_others(name) || IS_SO.contains(&name)
    }

    /// Sets an option. Returns whether it exists.
    fn set(&mut self, option: &str) -> Done<bool> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let bad = |why: &str| Failure::new(format!("mount option {option}: {why}"));
        match name {
            "ro" => self.fuse.read_only = true,
            "rw" => self.fuse.read_only = false,
            "allow_other" => self.fuse.allow_other = true,
            "allow_root_only" => self.fuse.allow_other = false,
            "suid" => self.fuse.suid = true,
            "nosuid" => self.fuse.suid = false,
            "dev" => self.fuse.dev = true,
            "nodev" => self.fuse.dev = false,
            "exec" => self.fuse.exec = true,
            "noexec" => self.fuse.exec = false,
            "nocache" => self.no_cache = true,
            "lazy" => self.lazy = true,
            "direct_io" => self.weir.direct_io = true,
            "tcp" => self.transport = Transport::Tcp,
            "consistency" => {
                self.weir.consistency = Consistency::from_name(value.as_bytes())
                    .ok_or_else(|| bad("not strict, relaxed or none"))?;
            }
            "read_policy" => {
                let named = ReadPolicy::ALL.into_iter().find(|p| p.name() == value);
                self.read_policy = named.ok_or_else(|| {
                    bad("not proportional, primary, halves, skip-hot, graduated or graduated-primary")
                })?;
            }
            "protection" => self.protection = Level::parse(value).map_err(|e| bad(&e))?,
            "ttl" => {
                let seconds: f64 = value.parse().map_err(|_| bad("not a number of seconds"))?;
                let ttl = Duration::try_from_secs_f64(seconds);
                self.weir.ttl = ttl.map_err(|_| bad("not a number of seconds"))?;
            }
            "timeout" => {
                let seconds: u64 = value.parse().map_err(|_| bad("not a number of seconds"))?;
                if !TIMEOUT_SECONDS.contains(&seconds) {
                    let (least, most) = TIMEOUT_SECONDS.into_inner();
                    return Err(bad(&format!("{least} to {most} seconds are allowed")));
                }
                self.timeout_ms = Some(seconds * 1000);
            }
            "metrics" => self.metrics = Some(crate::metrics::parse(value)?),
            "max_io" => {
                let size = parse_size(value).map_err(|e| bad(&e))?;
                self.fuse.max_io_bytes = usize::try_from(size.0).map_err(|_| bad("too large"))?;
            }
            "read_ahead" => {
                let size = parse_size(value).map_err(|e| bad(&e))?.0;
                if size > MAX_READ_AHEAD_BYTES {
                    return Err(bad("at most 1G is allowed"));
                }
                self.fuse.read_ahead_kib = size.div_ceil(1024) as u32;
            }
            "atime" | "relatime" | "norelatime" | "nostrictatime" => {
                self.access_times(AccessTimes::Relative, MountFlags::RELATIME);
            }
            "noatime" => self.access_times(AccessTimes::Never, MountFlags::NOATIME),
            "strictatime" => self.access_times(AccessTimes::Always, MountFlags::STRICTATIME),
            "nodiratime" | "diratime" => {
                self.weir.no_directory_access = name == "nodiratime";
                self.fuse.access_flags.set(MountFlags::NODIRATIME, name == "nodiratime");
            }
            // A possible remount was handled before this: see `remount`.
            "remount" => {
                return Err(bad("not possible here").hint("it is an option of one command only"));
            }
            _ if is_for_others(name) || IS_SO.contains(&name) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn access_times(&mut self, times: AccessTimes, flag: MountFlags) {
        let all = MountFlags::RELATIME | MountFlags::NOATIME | MountFlags::STRICTATIME;
        self.fuse.access_flags.remove(all);
        self.fuse.access_flags.insert(flag);
        self.weir.access_times = times;
    }
}

/// Options that are always in effect: the kernel always checks permissions (besides the metadata
/// server), and access times are always written late.
const IS_SO: [&str; 7] =
    ["default_permissions", "async", "symfollow", "silent", "loud", "lazytime", "nolazytime"];

/// Whether an option in /etc/fstab is meant for mount(8) or systemd, which pass it on nevertheless.
fn is_for_others(name: &str) -> bool {
    const FOR_OTHERS: [&str; 12] = [
        "defaults", "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "nousers",
        "owner", "group", "comment",
    ];
    FOR_OTHERS.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Done<MountOptions> {
        MountOptions::parse(&options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_understood_or_named() {
        let all = parse(&["ro,nocache,lazy", "ttl=0.5", "max_io=512K"]).unwrap();
        assert!(all.fuse.read_only && all.no_cache && all.lazy);
        assert_eq!(all.weir.ttl, Duration::from_millis(500));
        assert_eq!(all.fuse.max_io_bytes, 512 << 10);
        assert_eq!(all.weir.consistency, Consistency::Strict);
        assert_eq!(parse(&["consistency=none"]).unwrap().weir.consistency, Consistency::None);
        for policy in ReadPolicy::ALL {
            let option = format!("read_policy={}", policy.name());
            assert_eq!(parse(&[&option]).unwrap().read_policy, policy);
        }
        let unknown = parse(&["read_policy=best"]).err().unwrap().to_string();
        assert!(unknown.contains("proportional, primary"), "{unknown}");
        assert!(parse(&["consistency=some"]).err().unwrap().to_string().contains("relaxed"));
        let unknown = parse(&["turbo"]).err().unwrap().to_string();
        assert!(unknown.contains("turbo") && unknown.contains("nocache"), "{unknown}");
        assert_eq!(parse(&["protection=private"]).unwrap().protection, Level::Private);
        let unknown = parse(&["protection=most"]).err().unwrap().to_string();
        assert!(unknown.contains("args, data or private"), "{unknown}");
        assert!(parse(&["ttl=-1"]).is_err());
        assert_eq!(parse(&["read_ahead=16M"]).unwrap().fuse.read_ahead_kib, 16 << 10);
        assert_eq!(parse(&["read_ahead=512"]).unwrap().fuse.read_ahead_kib, 1);
        assert!(parse(&["read_ahead=2G"]).err().unwrap().to_string().contains("at most 1G"));
        assert_eq!(parse(&["timeout=7"]).unwrap().timeout_ms, Some(7000));
        let metrics = parse(&["metrics=127.0.0.1:7810"]).unwrap().metrics;
        assert_eq!(metrics, Some("127.0.0.1:7810".parse().unwrap()));
        assert!(parse(&["metrics=7810"]).err().unwrap().to_string().contains("127.0.0.1:7800"));
        let outside = parse(&["timeout=0"]).err().unwrap().to_string();
        assert!(outside.contains("1 to 3600"), "{outside}");
    }

    #[test]
    fn only_root_mounts_devices_and_setuid_programs() {
        let root = rustix::process::geteuid().is_root();
        let usual = parse(&["defaults"]).unwrap().fuse;
        assert_eq!((usual.suid, usual.dev, usual.exec), (root, root, true));
        let safe = parse(&["nosuid,nodev"]).unwrap().fuse;
        assert!(!safe.suid && !safe.dev);
    }

    #[test]
    fn a_line_of_fstab_is_understood() {
        let fstab = "defaults,_netdev,nofail,noauto,user=ann,users,x-systemd.automount,noatime";
        let all = parse(&[fstab, "comment=ours", "noexec,nosuid,nodev,exec"]).unwrap();
        assert!(all.fuse.exec && !all.fuse.suid && !all.fuse.dev);
        assert!(!parse(&["exec,noexec"]).unwrap().fuse.exec);
        parse(&["norelatime,strictatime,lazytime,nodiratime,symfollow,silent"]).unwrap();
        assert!(parse(&["noexecutable"]).is_err());
        let known = ["ttl=never", "remount", "noauto", "turbo"].map(MountOptions::knows);
        assert_eq!(known, [true, true, true, false]);
        let remount = parse(&["remount,ro"]).err().unwrap().to_string();
        assert!(remount.contains("one command"), "{remount}");
        let times = |options: &[&str]| parse(options).unwrap().weir.access_times;
        assert_eq!(times(&["strictatime,noatime"]), AccessTimes::Never);
        assert_eq!(times(&["noatime,strictatime"]), AccessTimes::Always);
        assert_eq!(times(&["noatime,relatime"]), AccessTimes::Relative);
        assert_eq!(times(&["strictatime,ro"]), AccessTimes::Never, "nothing is changed there");
        assert!(parse(&["nodiratime"]).unwrap().weir.no_directory_access);
    }
}
