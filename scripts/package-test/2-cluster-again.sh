# It was stopped in order, and is back; it is left alone while it is in use; a machine that has joined
. /steps/lib
in_order -1 'Stopping weir.service' 'Unmounted mnt-weir.mount'
in_order -1 'Unmounted mnt-weir.mount' 'Stopped weir.service'
ended_well
is weir active
same_data /mnt/weir

cd /mnt/weir
systemctl stop weir
is weir failed
same_data /mnt/weir
cd /
systemctl restart weir
same_data /mnt/weir
systemctl stop weir
not pgrep -x weir
rm /etc/weir/config.toml
weir down --purge --yes >/dev/null

# Its cluster comes up later than this machine.
weir up --name first --targets 1 --listen 127.0.0.1 --port 7700 >/dev/null
weir invite --name first --address 127.0.0.1 2>/dev/null | weir join --data /disks/joined >/dev/null
weir down >/dev/null
weir down --name first >/dev/null
not systemctl start weir 2>/dev/null
weir up --name first >/dev/null
becomes weir active
weir targets --name first | grep -c ' online ' | grep -x 2 >/dev/null
systemctl --quiet disable --now weir
weir down --purge --yes >/dev/null
weir down --name first --purge --yes >/dev/null
not pgrep -x weir
