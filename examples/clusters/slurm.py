"""Start GPU workers on SLURM and print the address for `headcount sweep --cluster`.

Needs dask-jobqueue and the certificates of SECURITY.md: python slurm.py 8 ca.pem me.pem me.key
"""

from __future__ import annotations

import sys
import time

from dask_jobqueue import SLURMCluster
from distributed import Security

count, ca, cert, key = int(sys.argv[1]), *sys.argv[2:5]
own = {
    f"tls_{side}_{part}": file
    for side in ("scheduler", "worker", "client")
    for part, file in (("cert", cert), ("key", key))
}
security = Security(require_encryption=True, tls_ca_file=ca, **own)
cluster = SLURMCluster(protocol="tls://", security=security)  # the rest is in slurm.yaml
cluster.scale(jobs=count)
print(f"headcount sweep runs.toml --cluster {cluster.scheduler_address}", flush=True)
while True:  # the jobs end with this process
    time.sleep(60)
