# They were stopped after the mount, and started before it; a mount at the first use
. /steps/lib
for unit in weir-data@1 weir-data@10 weir-meta; do
  in_order -1 'Unmounted mnt-weir.mount' "Stopping $unit.service"
  in_order 0 "Started $unit.service" 'Mounting mnt-weir.mount'
done
ended_well
same_data /mnt/weir
cmp /root/noise /mnt/weir/noise2
diff -r /usr/share/doc /mnt/weir/last

umount /mnt/weir
sed -i 's/,nofail/,nofail,x-systemd.automount/' /etc/fstab
