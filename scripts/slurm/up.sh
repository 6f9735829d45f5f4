#!/usr/bin/env bash
# A private Slurm of four pretended nodes with four pretended GPUs each, on one Debian machine, as root: for tests.
# No systemd, no cgroups. Everything lives under $SLURM_TEST_ROOT; nodes get names in /etc/hosts.
#   up.sh            installs packages where missing, starts munged, mariadbd, slurmdbd, slurmctld and slurmd x 4
#   DBD=0 up.sh      without accounting: no MariaDB, no slurmdbd
# Exit status 3: the packages cannot be had.
# Afterwards:  source $SLURM_TEST_ROOT/env.sh     and in the end:  down.sh
set -euo pipefail
R=${SLURM_TEST_ROOT:-${TMPDIR:-/tmp}/slurm-test}
NODES=${NODES:-4}          # number of fake nodes
NCPU=${NCPU:-8}            # CPUs each node claims
NGPU=${NGPU:-4}            # fake GPUs each node claims
DBD=${DBD:-1}
HOSTS=${HOSTS:-1}          # add node names to /etc/hosts
CTLD_PORT=${CTLD_PORT:-16817}; DBD_PORT=${DBD_PORT:-16819}; SLURMD_PORT=${SLURMD_PORT:-16900}; SQL_PORT=${SQL_PORT:-13306}
log(){ printf '[slurm %5.1fs] %s\n' "$(( ($(date +%s%N)-T0)/100000000 ))e-1" "$*"; }
T0=$(date +%s%N)

# 1. packages (Debian 12: slurm 22.05.8, munge 0.5.15, MariaDB 10.11); policy-rc.d keeps their services from starting
need=(slurmctld slurmd slurm-client munge); [ "$DBD" = 1 ] && need+=(slurmdbd mariadb-server)
miss=(); for p in "${need[@]}"; do dpkg -s "$p" 2>/dev/null | grep -q '^Status: install ok installed' || miss+=("$p"); done
if [ ${#miss[@]} -gt 0 ]; then
  log "installing ${miss[*]}"
  export DEBIAN_FRONTEND=noninteractive
  made_policy=0
  if [ ! -e /usr/sbin/policy-rc.d ]; then printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; made_policy=1; fi
  installed=0
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${miss[@]}" >/dev/null && installed=1
  [ $made_policy = 1 ] && rm -f /usr/sbin/policy-rc.d
  [ $installed = 1 ] || { echo "these packages cannot be installed: ${miss[*]}" >&2; exit 3; }
fi
log "packages ready: $(slurmctld -V), $(munged -V | head -1 | cut -d' ' -f1)"

# 2. layout + config
rm -rf "$R"; mkdir -p "$R"/{etc,log,run,state,dev,sql,munge}; chmod 755 "$R"; chmod 700 "$R/munge"
for i in $(seq 1 "$NODES"); do mkdir -p "$R/spool/node$i"; done
for g in $(seq 0 $((NGPU-1))); do mknod "$R/dev/fakegpu$g" c 1 3 2>/dev/null || ln -s /dev/null "$R/dev/fakegpu$g"; done   # char devices (copies of /dev/null): slurmd insists on a device node
if [ "$HOSTS" = 1 ] && ! grep -q 'slurm-test-nodes' /etc/hosts; then
  printf '127.0.0.1 %s # slurm-test-nodes\n' "$(seq -s' ' -f 'node%g' 1 "$NODES")" >> /etc/hosts
fi
H=$(hostname -s)
dd if=/dev/urandom of="$R/munge/munge.key" bs=1 count=1024 status=none; chmod 400 "$R/munge/munge.key"

cat > "$R/etc/slurm.conf" <<C
ClusterName=test
SlurmctldHost=$H(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$R/run/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort=$CTLD_PORT
SlurmdPort=$SLURMD_PORT
StateSaveLocation=$R/state
SlurmdSpoolDir=$R/spool/%n
SlurmctldPidFile=$R/run/slurmctld.pid
SlurmdPidFile=$R/run/slurmd.%n.pid
SlurmctldLogFile=$R/log/slurmctld.log
SlurmdLogFile=$R/log/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=100000,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
KillWait=2
MinJobAge=300
InactiveLimit=0
OverTimeLimit=0
SlurmctldTimeout=60
SlurmdTimeout=60
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobCompType=jobcomp/filetxt
JobCompLoc=$R/log/jobcomp.txt
$( [ "$DBD" = 1 ] && printf 'AccountingStorageTRES=gres/gpu\nAccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort=%s\nAccountingStoragePass=%s\nAccountingStorageEnforce=associations,limits,qos\n' "$DBD_PORT" "$R/run/munge.socket" )
$( for i in $(seq 1 "$NODES"); do echo "NodeName=node$i NodeHostname=$H NodeAddr=127.0.0.1 Port=$((SLURMD_PORT+i)) CPUs=$NCPU Boards=1 SocketsPerBoard=1 CoresPerSocket=$NCPU ThreadsPerCore=1 RealMemory=${NODE_MEM:-16000} Gres=gpu:h100:$NGPU State=UNKNOWN"; done )
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=00:30:00 State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=low  Nodes=ALL MaxTime=INFINITE DefaultTime=00:30:00 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=high Nodes=ALL MaxTime=INFINITE DefaultTime=00:30:00 State=UP PriorityTier=100 PreemptMode=OFF
C
cat > "$R/etc/gres.conf" <<C
AutoDetect=off
NodeName=node[1-$NODES] Name=gpu Type=h100 Flags=nvidia_gpu_env File=$R/dev/fakegpu[0-$((NGPU-1))]
C
cat > "$R/etc/cgroup.conf" <<C
CgroupAutomount=no
C
cat > "$R/env.sh" <<C
export SLURM_CONF=$R/etc/slurm.conf
C
export SLURM_CONF=$R/etc/slurm.conf

# 3. munged (as root: needs --force for the group-writable parents check under /tmp)
munged --force --key-file="$R/munge/munge.key" --socket="$R/run/munge.socket" --pid-file="$R/run/munged.pid" \
       --log-file="$R/log/munged.log" --seed-file="$R/munge/seed" --num-threads=2
munge -n --socket="$R/run/munge.socket" | unmunge --socket="$R/run/munge.socket" >/dev/null
log "munged up"

# 4. MariaDB + slurmdbd (for sacct)
if [ "$DBD" = 1 ]; then
  mariadb-install-db --no-defaults --user=root --datadir="$R/sql" --auth-root-authentication-method=socket --skip-test-db >"$R/log/mariadb-install.log" 2>&1
  setsid mariadbd --no-defaults --user=root --datadir="$R/sql" --socket="$R/run/mysqld.sock" --pid-file="$R/run/mysqld.pid" \
    --bind-address=127.0.0.1 --port="$SQL_PORT" --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 --innodb-log-file-size=32M \
    --skip-log-bin >"$R/log/mariadb.log" 2>&1 </dev/null &
  for _ in $(seq 400); do mariadb-admin --no-defaults --socket="$R/run/mysqld.sock" ping >/dev/null 2>&1 && break; sleep 0.2; done
  mariadb --no-defaults --socket="$R/run/mysqld.sock" -e "CREATE DATABASE slurm_acct_db; CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurmtest'; CREATE USER 'slurm'@'localhost' IDENTIFIED BY 'slurmtest'; GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1'; GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';"
  log "mariadbd up"
  cat > "$R/etc/slurmdbd.conf" <<C
AuthType=auth/munge
AuthInfo=socket=$R/run/munge.socket
DbdHost=$H
DbdAddr=127.0.0.1
DbdPort=$DBD_PORT
SlurmUser=root
PidFile=$R/run/slurmdbd.pid
LogFile=$R/log/slurmdbd.log
DebugLevel=verbose
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$SQL_PORT
StorageUser=slurm
StoragePass=slurmtest
StorageLoc=slurm_acct_db
C
  chmod 600 "$R/etc/slurmdbd.conf"
  setsid slurmdbd -D >"$R/log/slurmdbd.out" 2>&1 </dev/null &
  for _ in $(seq 400); do timeout 5 sacctmgr -n -i list cluster >/dev/null 2>&1 && break; sleep 0.2; done
  sacctmgr -i -Q add cluster test >/dev/null 2>&1 || true
  sacctmgr -i -Q add account rl Description=rl Organization=rl >/dev/null
  sacctmgr -i -Q add user root Account=rl DefaultAccount=rl >/dev/null
  log "slurmdbd up"
fi

# 5. slurmctld + one slurmd per fake node
slurmctld -c
for i in $(seq 1 "$NODES"); do slurmd -c -N "node$i"; done
for _ in $(seq 100); do kill -0 "$(cat "$R/run/slurmctld.pid" 2>/dev/null)" 2>/dev/null || { sleep 0.3; continue; }
  [ "$(timeout 5 sinfo -h -N -t idle -p main -o %N 2>/dev/null | wc -l)" = "$NODES" ] && break; sleep 0.2; done
[ "$(timeout 5 sinfo -h -N -t idle -p main -o %N | wc -l)" = "$NODES" ] || { timeout 5 sinfo -N -l; tail -20 "$R"/log/slurm*.log; exit 1; }
log "cluster up"
sinfo -p main -N -o "%N %T %c %m %G"
