//! Programs of a system, and the kernel's own targets, on a block device that the daemon serves (ublk).
//!
//! ```text
//! guest: tanada serve (hybrid, ublk) -> mkfs.ext4 | fio | blkdiscard | dd      on /dev/ublkb0
//!                                    -> nvmet over TCP on loopback -> nvme-tcp -> the same, kill -9 under fio
//!                                    -> LIO iblock -> tcm_loop -> the same; an iSCSI portal that takes a login
//! ```
//!
//! The guest is run by the lab's `vm` (see `guest`). Each part ends with what the daemon counted: no error, and flushes,
//! forced writes (FUA), discards and zeroing that came through. docs/iscsi.md and docs/nvme-tcp.md show the same commands.

use crate::guest::lab;
use crate::ublk::guest;

/// What is done with a disk: `check DISK`, `killed DISK` (the daemon dies under fio, and is started again), `counted`.
const CHECKS: &str = r#"
fail() { echo "failed: $*"; tail -5 log; exit 1; }
check() {
    fio --name=v --filename=$1 --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite --bsrange=512-1m --size=64M \
        --verify=crc32c --verify_fatal=1 --randrepeat=0 --output=fio.log || { cat fio.log; fail "fio on $1"; }
    head -c 4M /dev/urandom >some
    dd if=some of=$1 bs=64k oflag=direct,dsync status=none || fail "dd to $1"
    cmp -n 4194304 some $1 || fail "what dd wrote to $1"
    blkdiscard -o 1M -l 1M $1 || fail "blkdiscard of $1"
    blkdiscard -z -o 2M -l 1M $1 || fail "blkdiscard -z of $1"
    cmp -n 1048576 some $1 || fail "what stands before the hole in $1"
    cmp -n 1048576 -i 2097152:0 $1 /dev/zero || fail "zeroes on $1"
    cmp -n 1048576 -i 3145728 some $1 || fail "what stands behind the hole in $1"
}
killed() {
    fio --name=k --filename=$1 --size=24M --rw=randrw --bs=4k --direct=1 --ioengine=libaio --iodepth=16 --verify=crc32c \
        --verify_backlog=128 --verify_fatal=1 --randrepeat=0 --time_based --runtime=100000 --output=fio.log & fio=$!
    for round in $(seq 3); do
        sleep 1.$round
        kill -9 $daemon; wait $daemon 2>/dev/null
        [ $round != 2 ] || "$PROGRAM" doctor tanada.toml >doctor
        start
        kill -0 $fio 2>/dev/null || { cat fio.log; fail "fio ended on $1 after kill $round"; }
    done
    sleep 1
    kill -INT $fio; wait $fio
    grep -q 'err= 0' fio.log || { cat fio.log; fail "fio on $1"; }
    grep -q '/dev/ublkb0 waits for a daemon' doctor || { cat doctor; fail "doctor names no disk that waits"; }
    [ "$(grep -c 'recovered=true' log)" = 3 ] || fail "the disk was not recovered"
}
count() { "$PROGRAM" status --json | tr -d ' ",' | sed -n "s/^$1://p" | tail -n 1; }
export TANADA_ADMIN=unix:/run/t/admin.sock
# What ublk_requests has; other parts of the status have names of their own.
counted() {
    "$PROGRAM" status --json >status
    for kind in flushes discards forced write_zeroes; do
        number=$(sed -n "/ublk_requests/,/}/s/.*\"$kind\": *\([0-9]*\).*/\1/p" status)
        echo "$kind $number"
        case " $* " in *" $kind "*) [ "$number" -gt 0 ] || fail "no $kind came through" ;; esac
    done
    number=$(sed -n '/ublk_requests/,/}/s/.*"errors": *\([0-9]*\).*/\1/p' status)
    [ "$number" = 0 ] || fail "$number errors"
}
appeared() { for try in $(seq 100); do [ ! -b $1 ] || return 0; sleep 0.1; done; fail "no $1"; }
configfs() { mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config; }
"#;

const BLOCK: &str = r#"
disk=/dev/ublkb0
mkfs.ext4 -q $disk && e2fsck -fn $disk || fail mkfs
mount $disk /run/m && dd if=/dev/urandom of=/run/m/f bs=1M count=16 conv=fsync status=none && umount /run/m || fail mount
e2fsck -fn $disk || fail fsck
check $disk
counted flushes discards forced write_zeroes
echo passed
"#;

const NVME: &str = r#"
modprobe -a nvmet nvmet-tcp nvme-tcp || fail modules; configfs
nqn=nqn.2026-11.example:vol0
cd /sys/kernel/config/nvmet
uuid=1b4e28ba-2fa1-11d2-883f-0016d3cca427
host=nqn.2014-08.org.nvmexpress:uuid:$uuid
mkdir subsystems/$nqn hosts/$host && ln -s $PWD/hosts/* subsystems/$nqn/allowed_hosts/ || fail "the host"
mkdir subsystems/$nqn/namespaces/1
echo /dev/ublkb0 >subsystems/$nqn/namespaces/1/device_path
echo 1 >subsystems/$nqn/namespaces/1/enable || fail "the namespace"
mkdir ports/1 && echo ipv4 >ports/1/addr_adrfam && echo tcp >ports/1/addr_trtype
echo 127.0.0.1 >ports/1/addr_traddr && echo 4420 >ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/$nqn ports/1/subsystems/$nqn || fail "the port"
cd /run/t
words=nqn=$nqn,transport=tcp,traddr=127.0.0.1,trsvcid=4420
! echo "$words,hostnqn=$host-not,hostid=$uuid" >/dev/nvme-fabrics || fail "another host came in"
echo "$words,hostnqn=$host,hostid=$uuid" >/dev/nvme-fabrics || fail connect
appeared /dev/nvme0n1
check /dev/nvme0n1
counted flushes discards forced
killed /dev/nvme0n1
cd /sys/kernel/config/nvmet
echo 1 >/sys/class/nvme/nvme0/delete_controller || fail disconnect
rm ports/1/subsystems/$nqn && echo 0 >subsystems/$nqn/namespaces/1/enable && rmdir subsystems/$nqn/namespaces/1 &&
    rm -f subsystems/$nqn/allowed_hosts/* && rmdir subsystems/$nqn ports/1 || fail "taking it down"
cd /run/t; kill $daemon; wait $daemon; [ ! -e /dev/ublkb0 ] || fail "the disk stayed"
echo passed
"#;

const LIO: &str = r#"
modprobe -a sd_mod target_core_iblock tcm_loop iscsi_target_mod || fail modules; configfs
cd /sys/kernel/config/target
mkdir -p core/iblock_0/vol0
echo udev_path=/dev/ublkb0 >core/iblock_0/vol0/control
echo 1 >core/iblock_0/vol0/enable || fail "the backstore"
echo 1 >core/iblock_0/vol0/attrib/emulate_tpu
echo 1 >core/iblock_0/vol0/attrib/emulate_tpws
# A SCSI disk of this machine.
wwn=naa.6001405000000001
mkdir -p loopback/$wwn/tpgt_1/lun/lun_0
echo $wwn >loopback/$wwn/tpgt_1/nexus
ln -s /sys/kernel/config/target/core/iblock_0/vol0 loopback/$wwn/tpgt_1/lun/lun_0/vol0 || fail "the loop"
# And a target for others. A login of the least that RFC 7143 wants is answered with status 0.
iqn=iqn.2026-11.example:vol0
mkdir -p iscsi/$iqn/tpgt_1/lun/lun_0 iscsi/$iqn/tpgt_1/np/127.0.0.1:3260 || fail "the portal"
ln -s /sys/kernel/config/target/core/iblock_0/vol0 iscsi/$iqn/tpgt_1/lun/lun_0/vol0
for attribute in authentication=0 generate_node_acls=1 demo_mode_write_protect=0 cache_dynamic_acls=1; do
    echo ${attribute#*=} >iscsi/$iqn/tpgt_1/attrib/${attribute%=*}
done
echo 1 >iscsi/$iqn/tpgt_1/enable || fail "the target"
cd /run/t
exec 3<>/dev/tcp/127.0.0.1/3260 || fail "nothing listens"
text="InitiatorName=iqn.2026-11.example:i|SessionType=Normal|TargetName=$iqn|AuthMethod=None|"
pad=$(((4 - ${#text} % 4) % 4))
{
    printf '\x43\x81\0\0\0\0\0'; printf "\\x$(printf %x ${#text})"; printf '\x80\0\0\0\0\x01\0\0\0\0\0\x01'
    head -c 28 /dev/zero; printf %s "$text" | tr '|' '\0'; head -c $pad /dev/zero
} >&3
timeout 20 head -c 48 <&3 >answer
[ "$(od -An -tx1 -j 36 -N 2 answer | tr -d ' ')" = 0000 ] || { od -tx1 answer; fail "the login"; }
exec 3>&-
disk=
for try in $(seq 100); do
    for sd in /sys/block/sd*; do [ ! -e $sd/size ] || [ "$(cat $sd/size)" = 0 ] || disk=/dev/$(basename $sd); done
    [ -z "$disk" ] || break; sleep 0.1
done
appeared ${disk:-/dev/sda}
check $disk
counted flushes discards forced
killed $disk
echo passed
"#;

fn passes(part: &str) {
    let Some(vm) = lab(&["fio", "mkfs.ext4"]) else {
        return;
    };
    let (code, said) = guest(&vm, "", &format!("{CHECKS}\n{part}"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\npassed\n"), "{said}");
}

#[test]
fn a_ublk_disk_takes_what_programs_of_a_system_do() {
    passes(BLOCK);
}

#[test]
fn an_nvme_tcp_target_on_a_ublk_disk_outlives_its_daemon() {
    passes(NVME);
}

#[test]
fn a_scsi_target_on_a_ublk_disk_outlives_its_daemon() {
    passes(LIO);
}
