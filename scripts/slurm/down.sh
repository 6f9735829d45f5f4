#!/usr/bin/env bash
# Ends the private Slurm that up.sh started. Only processes named in its own pid files are signalled.
R=${SLURM_TEST_ROOT:-${TMPDIR:-/tmp}/slurm-test}
export SLURM_CONF=$R/etc/slurm.conf
[ -d "$R" ] || exit 0
timeout 10 scancel --state=RUNNING,PENDING -u root 2>/dev/null; sleep 1
stop(){ local f=$1 p; [ -s "$f" ] || return 0; p=$(cat "$f"); kill "$p" 2>/dev/null || return 0
        for _ in $(seq 50); do kill -0 "$p" 2>/dev/null || return 0; sleep 0.2; done; kill -9 "$p" 2>/dev/null; }
for f in "$R"/run/slurmd.*.pid "$R/run/slurmctld.pid" "$R/run/slurmdbd.pid" "$R/run/mysqld.pid" "$R/run/munged.pid"; do stop "$f"; done
sed -i '/slurm-test-nodes/d' /etc/hosts 2>/dev/null || { grep -v slurm-test-nodes /etc/hosts > "$R/hosts.new"; cat "$R/hosts.new" > /etc/hosts; }
[ "${KEEP:-0}" = 1 ] || rm -rf "$R"
echo "slurm down"
