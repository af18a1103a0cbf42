# A cluster of `weir up` as weir.service
. /steps/lib
apt-get install --yes --quiet --quiet /packages/weir.deb >/dev/null 2>&1
systemctl list-unit-files 'weir*' --no-legend | grep -c disabled | grep -x 3 >/dev/null
systemd-analyze --man=no verify weir.service weir-data@1.service weir-meta.service

weir up --targets 2 >/dev/null
weir down >/dev/null
printf '[up]\nmount = "/mnt/weir"\n' >/etc/weir/config.toml
systemctl --quiet enable --now weir
mountpoint --quiet /mnt/weir
systemctl status weir --no-pager | grep 'weir meta' >/dev/null
write_data /mnt/weir
