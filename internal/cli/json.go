package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// lockHelp describes a lock in JSON.
func lockHelp() string { return jsonLines + lockjson.LockShape().Help() }

const jsonLines = "JSON: one object per line. " + lockjson.Conventions + "\n\n"

func newLockJSON(r *metadata.Record, p staleness.Policy, waiters []metadata.Waiter, now time.Time) lockjson.Lock {
	return lockjson.New(r, judgeBy(p, r, now), lockjson.QueueOf(waiters), now)
}

// judge judges the lock by our own clock, whatever the unlockers decide.
func judge(r *metadata.Record, now time.Time) staleness.Verdict {
	return judgeBy(staleness.Policy{}, r, now)
}

// writeJSON writes v in one line. Unprintable characters, which could control a terminal, become escapes.
func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var line []byte
	for _, r := range string(text) {
		switch {
		case strconv.IsPrint(r):
			line = utf8.AppendRune(line, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
