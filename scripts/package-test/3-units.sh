# Daemons of units of their own, killed and restarted under a mount of /etc/fstab
. /steps/lib
weir up --listen 127.0.0.1 --port 7700 --targets 2 >/dev/null
weir down >/dev/null
cd /var/lib/weir/default
cp meta.toml data-1.toml data-2.toml /etc/weir
systemctl --quiet enable --now weir-meta weir-data@1 weir-data@2
# A further one, as that of another machine is made.
cd /root
weir key server --server 10 --targets 10 --output node2 >made
cp node2/* /etc/weir
sed -i 's|^dir = .*|dir = "/disks/a"|; s|^listen = .*|listen = "127.0.0.1:7710"|' /etc/weir/data-10.toml
sh -ec "$(sed -n 's|^  \(weir target create\) target-10|\1 /disks/a|p' made)"
systemctl --quiet enable --now weir-data@10
weir key new --output /etc/weir/client.toml >/dev/null
echo 'weir:/etc/weir/client.toml  /mnt/weir  fuse.weir  defaults,_netdev,nofail  0  0' >>/etc/fstab
systemctl daemon-reload
mkdir -p /mnt/weir
mount /mnt/weir
write_data /mnt/weir
weir status --credential /var/lib/weir/default/client.toml | tail -n 1 | grep -x 'All is well.' >/dev/null

systemctl status weir-data@10 --no-pager | grep 'Status: "data server 10 serves on' >/dev/null
grep -qx 'CapEff:	0000000000000000' "/proc/$(systemctl show -p MainPID --value weir-data@10)/status"
# Each line of its log says how grave it is.
logged() { journalctl --quiet --boot --unit weir-data@10 --output cat "$@"; }
logged --priority 6..6 | grep 'INFO weir::serve: data server 10 serves on' >/dev/null
logged --priority 0..4 >/root/said
not grep INFO /root/said

for unit in weir-data@10 weir-meta; do
  kill_main $unit
  becomes $unit active
  same_data /mnt/weir
done
head -c 300M /dev/urandom >/root/noise
cp /root/noise /mnt/weir/noise2 &
systemctl restart weir-data@10
systemctl restart weir-meta
wait %1
cmp /root/noise /mnt/weir/noise2
cp -a /usr/share/doc /mnt/weir/last
