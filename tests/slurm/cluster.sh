#!/bin/sh
# A SLURM cluster of two nodes on this machine: `cluster.sh start DIR`, `cluster.sh stop DIR`.
#
# It runs as the user who starts it, with its own munge key, ports and files in DIR; commands find it by
# SLURM_CONF=DIR/slurm.conf. Needs Debian's packages slurm-wlm and munge, or what provides the same commands.
set -eu
PATH=$PATH:/usr/sbin:/sbin
dir=$(mkdir -p "$2" && cd "$2" && pwd)
user=$(id -un)
export SLURM_CONF="$dir/slurm.conf"

stop() {
    for pid in "$dir"/*.pid; do
        [ -f "$pid" ] && kill "$(cat "$pid")" 2>/dev/null || true
    done
}

start() {
    mkdir -p "$dir/state" "$dir/spool"
    chmod 700 "$dir"  # munged refuses a folder that others may write to
    dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 2>/dev/null
    chmod 600 "$dir/munge.key"
    cat >"$SLURM_CONF" <<CONF
ClusterName=ipseg-tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=16817
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
ReturnToService=2
NodeName=node1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=16818 CPUs=4 State=UNKNOWN
NodeName=node2 NodeHostname=localhost NodeAddr=127.0.0.2 Port=16819 CPUs=4 State=UNKNOWN
PartitionName=tests Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
        --log-file="$dir/munged.log" --seed-file="$dir/munged.seed"
    slurmctld -c -i 2>"$dir/slurmctld.err"
    slurmd -N node1 2>"$dir/slurmd.err"
    slurmd -N node2 2>>"$dir/slurmd.err"
    for _ in $(seq 30); do
        [ "$(sinfo --noheader --Node --states=idle --format=%n 2>/dev/null | wc -l)" = 2 ] && return
        sleep 1
    done
    sinfo --Node || true
    tail -n 20 "$dir"/*.err "$dir"/*.log
    stop
    exit 1
}

"$1"
