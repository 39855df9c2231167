package lockview

import (
	"slices"
	"strings"
	"sync"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// interner lets equal values in many records share memory. Without it a lock takes 50 to 60 more bytes for its texts,
// and 260 more for its process. Package unique forgets a text at the next garbage collection unless a handle is kept,
// so locks taken one by one would share little.
type interner struct {
	mu        sync.Mutex
	texts     map[string]string
	processes map[metadata.Process]*metadata.Process
	keyNames  map[string]*keyNames // by all names
}

// maxInterned bounds the memory for values that occur once, such as purposes with a number in them.
const maxInterned = 8192

// text returns s or an equal text that is not part of a larger one.
func (i *interner) text(s string) string {
	if s == "" {
		return ""
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	known, ok := i.texts[s]
	if !ok {
		known = strings.Clone(s)
		i.texts = remember(i.texts, known, known)
	}
	return known
}

// process makes the locks of one process share its identity.
func (i *interner) process(p metadata.Process) *metadata.Process {
	for _, text := range []*string{&p.BootID, &p.PodNamespace, &p.PodName, &p.PodUID, &p.Container} {
		*text = i.text(*text)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.processes[p]
	if known == nil {
		known = &p
		i.processes = remember(i.processes, p, known)
	}
	return known
}

// keys makes the canonical locks with the same keys share their names.
func (i *interner) keys(names []string) *keyNames {
	if !slices.IsSorted(names) {
		slices.Sort(names)
	}
	all := strings.Join(names, "/")
	if len(all) > metadata.MaxTextBytes { // no two locks share such keys
		return &keyNames{names}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.keyNames[all]
	if known == nil {
		known = &keyNames{names}
		i.keyNames = remember(i.keyNames, all, known)
	}
	return known
}

// remember adds to a map, and starts a new map when it is full.
func remember[K comparable, V any](m map[K]V, key K, value V) map[K]V {
	if m == nil || len(m) >= maxInterned {
		m = make(map[K]V)
	}
	m[key] = value
	return m
}

// keyNames are the keys of a canonical lock, sorted. Locks with the same keys share them.
type keyNames struct{ names []string }
