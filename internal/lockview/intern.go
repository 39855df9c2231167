package lockview

import "sync"

// interner lets equal texts of many records share memory.
type interner struct {
	mu   sync.Mutex
	seen map[string]string
}

// maxInterned bounds the memory that texts of their own take, such as purposes with a number in them.
const maxInterned = 8192

func (i *interner) text(s string) string {
	if s == "" {
		return ""
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if known, ok := i.seen[s]; ok {
		return known
	}
	if i.seen == nil || len(i.seen) >= maxInterned {
		i.seen = make(map[string]string)
	}
	i.seen[s] = s
	return s
}
