package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Draft is a record that an acquirer is about to write.
type Draft struct {
	UUID string
	Holder
	Client       string // library and version
	LockedAt     time.Time
	AlertAt      time.Time
	AutoUnlockAt time.Time
	Backtrace    string         // cut to 16 KiB, with a mark, so that a long one fails no lock
	Process      Process        // what identifies the process with this PID
	LockDelay    time.Duration  // as of a [Record]; a part of a second counts as a whole one
	Attributes   map[string]any // text, numbers and booleans by name
}

// cutMark ends a backtrace that was cut.
const cutMark = "\n... cut\n"

// Fields returns the fields of the record: uuid, alert_at, auto_unlock_at and metadata. It fails, with a sentence for
// the caller, for what [Decode] would report as a problem.
func (d Draft) Fields() ([]Field, error) {
	if err := errors.Join(checkUUID(d.UUID), d.checkTexts(), d.checkTimes(), CheckLockDelay(d.LockDelay)); err != nil {
		return nil, err
	}
	document, err := d.document()
	if err != nil {
		return nil, err
	}
	fields := []Field{
		{Name: FieldUUID, Value: d.UUID},
		{Name: FieldAlertAt, Value: FormatTime(d.AlertAt)},
		{Name: FieldAutoUnlockAt, Value: FormatTime(d.AutoUnlockAt)},
		{Name: FieldMetadata, Value: document},
	}
	size := 0
	for _, f := range fields {
		size += len(f.Name) + len(f.Value)
	}
	if size > MaxRecordBytes {
		return nil, fmt.Errorf("the record has %d bytes, at most %d are allowed", size, MaxRecordBytes)
	}
	return fields, nil
}

func (d Draft) checkTexts() error {
	for _, f := range []struct{ name, value string }{
		{FieldOwner, d.Owner}, {FieldHostname, d.Hostname}, {FieldPurpose, d.Purpose}, {FieldClient, d.Client},
		{FieldBootID, d.Process.BootID}, {FieldPodNamespace, d.Process.PodNamespace}, {FieldPodName, d.Process.PodName},
		{FieldPodUID, d.Process.PodUID}, {FieldContainer, d.Process.Container},
	} {
		if err := checkText(f.name, f.value); err != nil {
			return err
		}
	}
	if len(d.Attributes) > MaxAttributes {
		return fmt.Errorf("%d attributes, at most %d are allowed", len(d.Attributes), MaxAttributes)
	}
	for _, name := range sortedKeys(d.Attributes) {
		if err := checkAttribute(name, d.Attributes[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkText(name, value string) error {
	if !utf8.ValidString(value) {
		return fmt.Errorf("%s is not valid UTF-8", name)
	}
	if len(value) > MaxTextBytes {
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", name, len(value), MaxTextBytes)
	}
	return nil
}

func checkAttribute(name string, value any) error {
	switch {
	case !IsFieldName(name):
		return fmt.Errorf("attribute name %q: want a letter, then letters, digits and _, all lower case, at most 63",
			clip(name))
	case IsReserved(name):
		return fmt.Errorf("attribute %q: the name belongs to the protocol", name)
	}
	switch v := value.(type) {
	case string:
		return checkText("attribute "+name, v)
	case bool, int, int32, int64, uint, uint32, uint64, float32, float64, json.Number:
		return nil
	}
	return fmt.Errorf("attribute %q: want text, a number or a boolean, not %T", name, value)
}

func (d Draft) checkTimes() error {
	for _, f := range []struct {
		name  string
		value time.Time
	}{{FieldLockedAt, d.LockedAt}, {FieldAlertAt, d.AlertAt}, {FieldAutoUnlockAt, d.AutoUnlockAt}} {
		if s := f.value.Unix(); s < 0 || s > maxSeconds {
			return fmt.Errorf("%s %v is outside 1970 to 2286", f.name, f.value)
		}
	}
	if d.AutoUnlockAt.Before(d.AlertAt) {
		return errors.New("auto_unlock_at is before alert_at")
	}
	return nil
}

// document returns the metadata document, without empty members.
func (d Draft) document() (string, error) {
	known, err := encode(struct {
		Backtrace string `json:"backtrace,omitempty"`
		Client    string `json:"client,omitempty"`
		Hostname  string `json:"hostname,omitempty"`
		LockDelay *int64 `json:"lock_delay,omitempty"`
		LockedAt  string `json:"locked_at"`
		Owner     string `json:"owner,omitempty"`
		PID       int64  `json:"pid,omitempty"`
		Purpose   string `json:"purpose,omitempty"`
		Process
	}{cutBacktrace(d.Backtrace), d.Client, d.Hostname, delaySeconds(d.LockDelay), FormatTime(d.LockedAt), d.Owner,
		d.PID, d.Purpose, d.Process})
	if err != nil || len(d.Attributes) == 0 {
		return known, err
	}
	attributes, err := encode(d.Attributes)
	return strings.TrimSuffix(known, "}") + "," + strings.TrimPrefix(attributes, "{"), err
}

func encode(v any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // frames are full of < and &, and the key should be readable with etcdctl
	err := encoder.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// cutBacktrace keeps whole lines of the newest frames.
func cutBacktrace(s string) string {
	if len(s) <= MaxBacktraceBytes {
		return s
	}
	kept := cut(s, MaxBacktraceBytes-len(cutMark))
	if i := strings.LastIndexByte(kept, '\n'); i > 0 {
		kept = kept[:i]
	}
	return kept + cutMark
}

// FormatAlive returns the value of the alive field.
func FormatAlive(at time.Time, progress string) string {
	if progress == "" {
		return FormatTime(at)
	}
	return FormatTime(at) + " " + cut(strings.ToValidUTF8(progress, "�"), MaxTextBytes)
}

// IsUUID reports whether s is a UUID as the protocol writes it: 36 characters, hexadecimal digits in lower case.
func IsUUID(s string) bool { return checkUUID(s) == nil }

// checkUUID returns an error unless s is a UUID as in [IsUUID].
func checkUUID(s string) error {
	ok := len(s) == 36
	for i := 0; ok && i < len(s); i++ {
		switch c := s[i]; i {
		case 8, 13, 18, 23:
			ok = c == '-'
		default:
			ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		}
	}
	if !ok {
		return fmt.Errorf("%q is not a UUID in lower case", clip(s))
	}
	return nil
}
