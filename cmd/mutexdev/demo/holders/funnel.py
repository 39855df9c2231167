"""A job of the demo, in Python: yesterday's sessions go into the warehouse, hour by hour."""

import os
import signal
import sys
import threading
import time

import clustermutex


def load(hour, pace):
    time.sleep(3 * pace)


def load_day(locks, pace):
    with locks.lock("analytics/funnel", purpose="sessions of yesterday into the warehouse", alert_after=60,
                    attributes={"day": "2026-11-21", "table": "sessions"}) as lock:
        for hour in range(1, 25):
            load(hour, pace)
            lock.alive(f"hour {hour} of 24")


def end_with_mutexdev():
    os.read(0, 1)  # standard input ends when mutexdev does, however that ends
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
    time.sleep(3)
    os._exit(1)


def main():
    endpoint, speed = sys.argv[1:]
    pace = 1 / float(speed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # which leaves the with block, so the lock is released
    threading.Thread(target=end_with_mutexdev, daemon=True).start()
    locks = clustermutex.Client(endpoint, owner="analytics")
    while True:
        try:
            load_day(locks, pace)
        except clustermutex.LostError as error:  # somebody forced the unlock, say
            print(error, file=sys.stderr)
        time.sleep(4 * pace)


main()
