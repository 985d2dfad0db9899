# What one guest does, for `cargo xtask bench peers`: every peer in turn, every phase of each, the same jobs on all.
#
#   before it stand: LAB PROGRAM TASK PEERS PHASES SEED HOT RUN WARM COPY IDLE (sizes in MiB, spans in seconds)
#   TASK  measure   set up, measure, take down
#         cut       set up, warm, write, then end this machine as a power cut does
#         restarted set up again from what the disks hold, and measure what is still fast
#
# Of each phase /lab gets PEER.PHASE.before and .after (counters), .json (what fio says), for a phase without fio .seconds,
# and for writes .samples: every half second what the peer and the slow disk have written. A peer that cannot be set up
# leaves PEER.absent, which says why.
set -u
slow=/dev/slow fast=/dev/fast home=/run/bench daemon= client=
export TANADA_ADMIN=unix:$home/admin.sock
mkdir -p $home
mkfifo $home/never

say() { echo "$(cut -d. -f1 /proc/uptime) s: $*"; }
wanted() { case " $PHASES " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
disk() { cat /sys/block/"$(basename "$(readlink -f $1)")"/stat; }
counters() {
    echo "uptime $(cat /proc/uptime)"
    head -n 1 /proc/stat
    [ -z "$daemon" ] || echo "server $(cut -d')' -f2 /proc/$daemon/stat)"
    echo "slow $(disk $slow)"
    echo "fast $(disk $fast)"
}
# What waits for the slow disk, as each peer tells it.
dirty() {
    case $peer in
    bcache) echo "dirty bcache $(cat /sys/block/bcache0/bcache/dirty_data)" ;;
    dm-cache | dm-writecache) echo "dirty $peer $(dmsetup status peer)" ;;
    tanada*) echo "dirty tanada $("$PROGRAM" status --json | tr -d ' ' | grep -o '"dirty_bytes":[0-9]*' | head -n 1)" ;;
    esac
}
before() { phase=$1; say "$peer $phase"; dirty >/lab/$peer.$phase.before; counters >>/lab/$peer.$phase.before; }
after() { counters >/lab/$peer.$phase.after; dirty >>/lab/$peer.$phase.after; }

# Without a program of its own: it would take the processor from what is measured.
sampled() {
    local peer_stat slow_stat a b
    peer_stat=$(readlink -f /sys/block/$(basename $(readlink -f $device)))/stat
    slow_stat=$(readlink -f /sys/block/$(basename $(readlink -f $slow)))/stat
    while read -r -a a <$peer_stat && read -r -a b <$slow_stat; do
        echo "${a[4]} ${b[4]}"
        read -r -t 0.5 <>$home/never
    done
}
# PHASE and fio's words. Without randrepeat=0 fio 3.33 goes where it went in the phase before, which a cache then hits.
job() {
    SEED=$((SEED + 1))
    before "$1"
    local sampler=
    case $1 in warm-write-* | burst) sampled >/lab/$peer.$phase.samples & sampler=$! ;; esac
    fio --name=x --filename=$device --direct=1 --ioengine=libaio --randrepeat=0 --randseed=$SEED --size=${HOT}m \
        --lat_percentiles=1 --clat_percentiles=0 --output-format=json --output=/lab/$peer.$phase.json "${@:2}" >&2
    local ended=$?
    after
    [ -z "$sampler" ] || { kill $sampler; wait $sampler 2>/dev/null; }
    return $ended
}
timed() { job "$1" --rw="$2" --iodepth=$3 --time_based --runtime=$RUN "${@:4}"; }

tanada_config() {
    local cache= entrance='nbd = "unix:/run/bench/nbd.sock"'
    [ $peer = tanada-nbd ] || entrance='ublk = true'
    # Like the lab's bcache, which takes in all that it sees. Tanada as it comes has a line of its own.
    [ $peer = tanada-default ] || cache='mode = "cache"
admission = "always"
sequential_bypass = "off"'
    cat <<END
data_dir = "$state/data"
[admin]
listen = "$TANADA_ADMIN"
[[device]]
name = "slow"
path = "$(readlink -f $slow)"
[[device]]
name = "fast"
path = "$(readlink -f $fast)"
[[hybrid]]
name = "vol0"
slow = "slow"
fast = "fast"
$cache
[[export]]
device = "vol0"
$entrance
END
}
tanada_up() {
    state=$home
    [ ! -e /dev/state ] || state=/run/state
    tanada_config >$home/tanada.toml
    "$PROGRAM" serve $home/tanada.toml >$home/log 2>&1 &
    daemon=$!
    for try in $(seq 600); do
        ! grep -q 'Stop it with' $home/log || break
        kill -0 $daemon 2>/dev/null || { daemon=; tail -n 5 $home/log; return 1; }
        sleep 0.1
    done
    case $peer in
    tanada-nbd)
        modprobe nbd
        nbd-client -N vol0 -unix $home/nbd.sock /dev/nbd0 >&2 || return 1
        client=/dev/nbd0 device=/dev/nbd0 ;;
    *) device=/dev/ublkb0 ;;
    esac
    for try in $(seq 50); do [ ! -b $device ] || return 0; sleep 0.1; done
    echo "no $device"; tail -n 5 $home/log; return 1
}
# The first bytes of both disks hold what another peer left.
blank() {
    for disk in $slow $fast; do
        dd if=/dev/zero of=$disk bs=1M count=8 conv=fsync status=none
        dd if=/dev/zero of=$disk bs=1M count=1 seek=$(($(blockdev --getsize64 $disk) / 1048576 - 1)) conv=fsync status=none
    done
}
kernel_peer() {
    local kind=$peer
    case $peer in bcache | dm-cache) kind=$peer-wb ;; esac
    device=$("$LAB/peer" $kind) || return 1
    [ -b "$device" ] || { echo "no device of $kind"; return 1; }
}
up() {
    case $peer in
    bare) device=$slow ;;
    tanada*) modprobe ublk_drv; tanada_up ;;
    *) kernel_peer ;;
    esac
}
down() {
    case $peer in
    bcache)
        for set in /sys/fs/bcache/*-*; do echo 1 >$set/stop; done
        { echo 1 >/sys/block/bcache0/bcache/stop; } 2>/dev/null # it may be gone with its set
        for try in $(seq 100); do [ -e /sys/block/bcache0 ] || break; sleep 0.1; done
        sleep 1 ;;
    dm-*) for name in peer data meta; do dmsetup remove --noudevsync $name 2>/dev/null; done ;;
    tanada*)
        [ -z "$client" ] || nbd-client -d $client >&2
        [ -z "$daemon" ] || { kill $daemon; wait $daemon; }
        client= daemon=
        rm -rf $home/data ;;
    esac
    return 0
}
# The kernel peers as they are shipped: the lab lets bcache take in streams, too.
streams() {
    [ $peer != bcache ] || echo $1 >/sys/block/bcache0/bcache/sequential_cutoff
    case $peer in
    tanada-ublk | tanada-nbd) "$PROGRAM" volume set vol0 sequential_bypass=$2 admission=$3 >&2 ;;
    esac
}
warm_up() { fio --name=x --filename=$device --direct=1 --ioengine=libaio --rw=read --bs=256k --iodepth=8 --size=${HOT}m \
    --time_based --runtime=$WARM --output-format=json --output=/dev/null >&2; }

copy() {
    before copy
    streams 4194304 1MiB second-access
    local begun=$(cut -d' ' -f1 /proc/uptime)
    dd if=$device of=$device bs=1M count=$COPY skip=1024 seek=4096 iflag=direct oflag=direct conv=fsync status=none || return 1
    echo "copied $COPY MiB from $begun to $(cut -d' ' -f1 /proc/uptime)" >/lab/$peer.copy.seconds
    after
    streams 0 off always
}
idle() {
    before idle
    for second in $(seq $IDLE); do sleep 1; echo "$(cut -d' ' -f1 /proc/uptime) $(disk $slow)"; done >/lab/$peer.idle.seconds
    after
}
measure() {
    ! wanted cold-1 || timed cold-1 randread 1 --bs=4k --size=100% || return 1
    ! wanted cold-16 || timed cold-16 randread 16 --bs=4k --size=100% || return 1
    ! wanted hot-cold || timed hot-cold randread 1 --bs=4k || return 1
    ! wanted warming || job warming --rw=read --bs=256k --iodepth=8 --time_based --runtime=$WARM || return 1
    ! wanted warm-read-1 || timed warm-read-1 randread 1 --bs=4k || return 1
    ! wanted warm-read-16 || timed warm-read-16 randread 16 --bs=4k || return 1
    ! wanted warm-write-1 || timed warm-write-1 randwrite 1 --bs=4k || return 1
    ! wanted warm-write-16 || timed warm-write-16 randwrite 16 --bs=4k || return 1
    ! wanted warm-256k || timed warm-256k randread 4 --bs=256k || return 1
    ! wanted copy || copy || return 1
    ! wanted after-copy || timed after-copy randread 1 --bs=4k || return 1
    ! wanted burst || job burst --rw=randwrite --bs=4k --iodepth=16 || return 1
    ! wanted idle || idle
}
# Half of the hot set was read, the other half written and flushed, when the power goes.
cut_off() {
    warm_up
    fio --name=x --filename=$device --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --iodepth=16 --size=$((HOT / 2))m \
        --verify=crc32c --do_verify=0 --end_fsync=1 --output-format=json --output=/lab/$peer.cut.json >&2 || return 1
    echo b >/proc/sysrq-trigger
    sleep 60
}
restarted() {
    timed restarted randread 1 --bs=4k || return 1
    before verified
    fio --name=x --filename=$device --direct=1 --ioengine=libaio --rw=read --bs=4k --iodepth=16 --size=$((HOT / 2))m \
        --verify=crc32c --lat_percentiles=1 --clat_percentiles=0 --output-format=json --output=/lab/$peer.verified.json >&2
    echo $? >/lab/$peer.verified.seconds
    after
}

[ ! -e /dev/state ] || {
    modprobe ext4
    [ $TASK = restarted ] || mkfs.ext4 -q /dev/state
    mkdir -p /run/state && mount /dev/state /run/state || exit 1
}
# A peer that is set up again formats nothing: what `peer` formats with does nothing.
[ $TASK != restarted ] || {
    mkdir -p /run/again
    for program in dd wipefs make-bcache; do ln -sf /bin/true /run/again/$program; done
    again=/run/again:
}
# What one fio costs that does nothing: every phase has it.
peer=floor device=/dev/null
before floor
fio --name=x --ioengine=null --size=4k --bs=4k --rw=read --output-format=json --output=/lab/floor.floor.json >&2
after
for peer in $PEERS; do
    [ $TASK = restarted ] || blank
    if ! PATH=${again:-}$PATH up >$home/why 2>&1; then
        tail -n 3 $home/why >/lab/$peer.absent
        say "$peer: absent: $(cat /lab/$peer.absent)"
        down
        continue
    fi
    case $TASK in
    measure) measure ;;
    cut) cut_off ;;
    restarted) restarted ;;
    esac || echo "phase $phase failed" >/lab/$peer.absent
    down
done
