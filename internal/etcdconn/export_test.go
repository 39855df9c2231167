package etcdconn

import "time"

// Every has a Trouble look this often.
func (t *Trouble) Every(d time.Duration) { t.every = d }
