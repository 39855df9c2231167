package etcdconn

import "time"

// SetInterval makes the monitor check this often.
func (t *FaultMonitor) SetInterval(d time.Duration) { t.interval = d }
