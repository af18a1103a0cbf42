# The mount at the first use; without a metadata server it can be unmounted
. /steps/lib
grep -q ' /mnt/weir autofs ' /proc/mounts
not grep ' /mnt/weir fuse.weir ' /proc/mounts
same_data /mnt/weir
grep -q ' /mnt/weir fuse.weir ' /proc/mounts

systemctl stop weir-meta
timeout 20 umount /mnt/weir
# A use fails while the cluster is away, and mounts when it is there.
not ls /mnt/weir 2>/dev/null
systemctl start weir-meta
same_data /mnt/weir
