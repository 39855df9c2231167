package protocol

import "github.com/clustermutex/unlocker/pkg/metadata"

// Gatherer puts locks together from their keys, which come in key order: one lock after the other. So only one lock is
// in memory at a time, with its backtrace.
type Gatherer struct {
	// Each is called for every lock, with the arguments of [metadata.Decode].
	Each func(lock string, fields []metadata.Field, foreign []string)

	lock    string
	fields  []metadata.Field
	foreign []string
}

// Take takes the next key. Keys outside the range of any record are left out.
func (g *Gatherer) Take(key Key, kv KV) {
	if key.Lock == "" || key.Kind != KindField && key.Kind != KindForeign {
		return
	}
	if key.Lock != g.lock {
		g.Flush()
		g.lock = key.Lock
	}
	if key.Kind == KindForeign {
		g.foreign = append(g.foreign, kv.Key)
		return
	}
	g.fields = append(g.fields, kv.Field(key))
}

// Flush ends the current lock: call it after the last key. Foreign keys alone are no lock.
func (g *Gatherer) Flush() {
	fields, foreign := g.fields, g.foreign
	g.fields = nil
	g.foreign = nil
	if len(fields) > 0 {
		g.Each(g.lock, fields, foreign)
	}
}
