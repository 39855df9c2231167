"""Takes and releases a lock as often as each line of standard input says, and prints the microseconds of each."""

import sys
import time

import clustermutex

locks = clustermutex.Client(sys.argv[1], owner="bench")
for line in sys.stdin:
    took = []
    for _ in range(int(line)):
        began = time.perf_counter()
        with locks.lock("bench/python"):
            pass
        took.append(round((time.perf_counter() - began) * 1e6))
    print(*took, flush=True)
