# The next version, and none
. /steps/lib
in_order -1 'Unmounted mnt-weir.mount' 'Stopping weir-meta.service' >/dev/null
ended_well
same_data /mnt/weir
apt() { apt-get --yes --quiet --quiet "$@" 2>&1; }
program() { readlink "/proc/$(systemctl show -p MainPID --value "$1")/exe"; }

apt install /packages/next.deb | grep 'until they are restarted:.* weir-meta.service' >/dev/null
[[ $(program weir-meta) == '/usr/bin/weir (deleted)' ]]
same_data /mnt/weir
systemctl restart weir-meta weir-data@1 weir-data@2 weir-data@10
[[ $(program weir-meta) == /usr/bin/weir ]]
same_data /mnt/weir

# Not while it is used.
cd /mnt/weir
not apt remove weir >/root/refused
grep -q 'busy: used by' /root/refused
grep -q ' /mnt/weir fuse.weir ' /proc/mounts
is mnt-weir.automount active
is weir-meta active
same_data /mnt/weir
cd /
# One that nobody has used yet goes with the others.
line=$(grep ' /mnt/weir ' /etc/fstab)
echo "${line/ \/mnt\/weir / /mnt/idle }" >>/etc/fstab
mkdir --parents /mnt/idle
systemctl daemon-reload
systemctl start mnt-idle.automount
grep -q ' /mnt/idle autofs ' /proc/mounts
apt remove weir >/dev/null
not pgrep -x weir
not grep fuse.weir /proc/mounts
not grep ' /mnt/idle ' /proc/mounts
is mnt-idle.automount inactive
[[ -z $(find /etc/systemd -name '*weir*') ]]
apt purge weir >/dev/null
[[ -e /etc/weir/client.toml && -d /var/lib/weir/default/meta && -d /disks/a ]]

# What was left is what it was.
apt install /packages/weir.deb >/dev/null
systemctl start weir-meta weir-data@1 weir-data@2 weir-data@10
mount /mnt/weir
same_data /mnt/weir
# A mount whose process was killed goes as well.
kill -KILL "$(pgrep --full '^/usr/bin/weir mount .*/mnt/weir')"
not ls /mnt/weir 2>/dev/null
apt purge weir >/dev/null
not pgrep -x weir
not grep fuse.weir /proc/mounts
sed -i /weir/d /etc/fstab
