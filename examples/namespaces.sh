#!/bin/bash
# Run a sweep on N dask workers, each in its own network namespace, and kill one of them with
# kill -9 during the sweep.
# Needs root and iproute2:
#   sudo PATH=$PATH examples/namespaces.sh 4 sweep.toml sweep.sqlite
set -u
workers=$1 file=$2 store=$3
ip link add hcbr type bridge && ip addr add 10.77.0.1/24 dev hcbr && ip link set hcbr up || exit 1
for n in $(seq "$workers"); do
  ip netns add "hc$n"
  ip link add "hcv$n" type veth peer name "hcp$n"
  ip link set "hcp$n" netns "hc$n"
  ip link set "hcv$n" master hcbr up
  ip netns exec "hc$n" ip addr add "10.77.0.$((n + 1))/24" dev "hcp$n"
  ip netns exec "hc$n" ip link set "hcp$n" up
done
dask scheduler --host 10.77.0.1 --port 8786 --no-dashboard 2>/dev/null & scheduler=$!
sleep 5
pids=()
for n in $(seq "$workers"); do
  ip netns exec "hc$n" \
    dask worker tcp://10.77.0.1:8786 --nthreads 1 --no-nanny --no-dashboard 2>/dev/null &
  pids+=($!)
done
headcount sweep "$file" --store "$store" --cluster tcp://10.77.0.1:8786 & sweep=$!
if [ "$workers" -gt 1 ]; then
  # wait for the first finished runs
  until headcount watch "$store" --once 2>/dev/null | grep -q ' [1-9][0-9]*/'; do sleep 0.2; done
  kill -9 "${pids[0]}" && echo "killed worker ${pids[0]}"
fi
wait $sweep
status=$?
kill -9 $scheduler "${pids[@]}" 2>/dev/null  # without its scheduler a worker ends slowly
for n in $(seq "$workers"); do ip netns del "hc$n"; ip link del "hcv$n" 2>/dev/null; done
ip link del hcbr
exit $status
