//! `-o remount`: changes those flags of an existing mount that the kernel applies. The options of
//! the mount's process do not change.

use crate::cluster::mounts::{self, WeirMount};
use crate::failure::{Done, Failure};
use crate::logging;
use crate::mount_options::MountOptions;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use std::path::Path;
use weir_types::ErrorKind;

/// The flags that can be changed, with the option that sets each and the one that clears it.
const FLAGS: [(MountFlags, &str, &str); 4] = [
    (MountFlags::RDONLY, "ro", "rw"),
    (MountFlags::NOSUID, "nosuid", "suid"),
    (MountFlags::NODEV, "nodev", "dev"),
    (MountFlags::NOEXEC, "noexec", "exec"),
];
/// Options that the kernel shows for every FUSE mount and that mount(8) passes on.
const SHOWN: [&str; 7] =
    ["fd", "rootmode", "user_id", "group_id", "max_read", "blksize", "allow_other"];

/// Whether the options ask for a remount.
pub fn is_asked(options: &[String]) -> bool {
    options.iter().flat_map(|option| option.split(',')).any(|option| option == "remount")
}

/// Remounts. `source` is the source that the mount must have.
pub fn remount(path: &Path, options: &[String], source: Option<&str>) -> Done {
    let Some(mount) = mounts::at(path)? else {
        return Err(Failure::new("no Weir is mounted here, so there is none to remount")
            .about(path.display()));
    };
    if let Some(source) = source.filter(|source| *source != mount.source) {
        let other = format!("{} is mounted here, and not {source}", mount.source);
        return Err(Failure::new(other).about(path.display()));
    }
    let (flags, stay) = wanted(&mount, options)?;
    for option in stay {
        logging::say(&format!(
            "weir: {option}: does not change; to change it, umount {0} and mount it anew",
            path.display()
        ));
    }
    mount_remount(path, flags, c"").map_err(|errno| {
        let failure = Failure::file(path, errno);
        match errno {
            Errno::BUSY => failure.hint("files are open for writing: close them first"),
            Errno::PERM => failure.hint("only root can remount"),
            _ => failure,
        }
    })
}

/// The flags to set, and the options that cannot be changed.
fn wanted<'a>(mount: &WeirMount, options: &'a [String]) -> Done<(MountFlags, Vec<&'a str>)> {
    let is_now = |name: &str| mount.options.split(',').any(|option| option == name);
    let mut flags = MountFlags::empty();
    for (flag, set, _) in FLAGS {
        flags.set(flag, is_now(set));
    }
    let mut stay = Vec::new();
    for option in options.iter().flat_map(|option| option.split(',')) {
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        let known = FLAGS.into_iter().find(|(_, set, unset)| [*set, *unset].contains(&option));
        let is_no_change = ["", "remount"].contains(&option)
            || SHOWN.contains(&name)
            || is_now(option)
            || MountOptions::says_nothing(option);
        match known {
            Some((flag, set, _)) => flags.set(flag, option == set),
            None if is_no_change => {}
            None if MountOptions::knows(option) => stay.push(option),
            None => {
                let what = ErrorKind::InvalidArgument.text();
                return Err(Failure::new(format!("mount option {option}: {what}")));
            }
        }
    }
    Ok((flags, stay))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(now: &str, options: &[&str]) -> Done<(MountFlags, Vec<String>)> {
        let mount = WeirMount {
            mountpoint: "/m".into(),
            source: "weir:/c".into(),
            connection: "1".into(),
            options: now.into(),
        };
        let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
        let (flags, stay) = wanted(&mount, &options)?;
        Ok((flags, stay.into_iter().map(str::to_owned).collect()))
    }

    #[test]
    fn what_is_not_named_stays() {
        let now = "rw,nosuid,nodev,relatime";
        let as_now = MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(wants(now, &["remount"]).unwrap().0, as_now);
        let read_only = wants(now, &["remount,ro"]).unwrap();
        assert_eq!(read_only, (as_now | MountFlags::RDONLY, vec![]));
        let back = wants("ro,nosuid,nodev,relatime", &["remount", "rw,noexec,dev"]).unwrap();
        assert_eq!(back.0, MountFlags::NOSUID | MountFlags::NOEXEC);
    }

    #[test]
    fn what_mount_hands_on_of_the_kernels_table_is_no_change() {
        let now = "rw,nosuid,nodev,noatime";
        let handed_on = "rw,nosuid,nodev,noatime,user_id=0,group_id=0,default_permissions,\
            allow_other,max_read=1048576,_netdev,x-systemd.automount,remount,ro";
        let (flags, stay) = wants(now, &[handed_on]).unwrap();
        assert!(flags.contains(MountFlags::RDONLY) && stay.is_empty(), "{stay:?}");
    }

    #[test]
    fn what_a_remount_cannot_change_is_named() {
        let stay = wants("rw,relatime", &["remount,noatime,ttl=3,ro"]).unwrap().1;
        assert_eq!(stay, ["noatime", "ttl=3"]);
        let unknown = wants("rw", &["remount,turbo"]).err().unwrap().to_string();
        assert!(unknown.contains("turbo"), "{unknown}");
    }
}
