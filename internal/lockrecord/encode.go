package lockrecord

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Draft is a record that an acquirer is about to write.
type Draft struct {
	UUID string
	metadata.Identity
	Client         string // library and version
	LockedAt       time.Time
	AlertAt        time.Time
	AutoUnlockAt   time.Time
	Backtrace      string           // cut to 16 KiB, with a mark, so that a long one does not fail the lock
	Process        metadata.Process // identifies the process with this PID
	LockDelay      time.Duration    // as in a [metadata.Record]; rounded up to whole seconds
	HeartbeatUntil time.Time        // zero: none
	Attributes     map[string]any   // text, numbers and booleans, by name
}

// cutMark ends a backtrace that was cut.
const cutMark = "\n... cut\n"

// Fields returns the fields of the record: uuid, alert_at, auto_unlock_at and metadata. It returns an error, a sentence
// for the caller, for whatever [Decode] would report as a problem.
func (d Draft) Fields() ([]metadata.Field, error) {
	record := d.document()
	rows := table(&record, &d.Process)
	if err := errors.Join(rows.check(), checkAttributes(d.Attributes)); err != nil {
		return nil, err
	}
	if d.AutoUnlockAt.Before(d.AlertAt) {
		return nil, errors.New("auto_unlock_at is before alert_at")
	}
	document, err := encode(&rows, d.Attributes)
	if err != nil {
		return nil, err
	}
	fields := []metadata.Field{
		{Name: FieldUUID, Value: d.UUID},
		{Name: FieldAlertAt, Value: metadata.FormatTime(d.AlertAt)},
		{Name: FieldAutoUnlockAt, Value: metadata.FormatTime(d.AutoUnlockAt)},
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

// document returns the part of the document that the table covers, as a reader will decode it.
func (d Draft) document() metadata.FullRecord {
	r := metadata.Record{UUID: d.UUID, Identity: d.Identity, LockedAt: d.LockedAt, AlertAt: d.AlertAt,
		AutoUnlockAt: d.AutoUnlockAt, LockDelay: d.LockDelay, HeartbeatUntil: d.HeartbeatUntil}
	return metadata.FullRecord{Record: r, Backtrace: cutBacktrace(d.Backtrace), Client: d.Client}
}

func checkAttributes(attributes map[string]any) error {
	if len(attributes) > MaxAttributes {
		return fmt.Errorf("%d attributes, at most %d are allowed", len(attributes), MaxAttributes)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if err := checkAttribute(name, attributes[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkText(name, value string) error {
	if !utf8.ValidString(value) {
		return fmt.Errorf("%s is not valid UTF-8", name)
	}
	if len(value) > metadata.MaxTextBytes {
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", name, len(value), metadata.MaxTextBytes)
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

// maxSecond is the last second of a time in the protocol, in the year 2286.
const maxSecond = 9_999_999_999

func checkTime(name string, at time.Time) error {
	if s := at.Unix(); s < 0 || s > maxSecond {
		return fmt.Errorf("%s %v is outside 1970 to 2286", name, at)
	}
	return nil
}

// encode returns the metadata document: the members that have a value, then the attributes. Their names need no
// escapes.
func encode(rows *fields, attributes map[string]any) (string, error) {
	var b bytes.Buffer
	b.Grow(4 << 10) // enough for most
	separator := byte('{')
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // frames are full of < and &, and the key should be readable with etcdctl
	add := func(name string, value any) error {
		b.WriteByte(separator)
		b.WriteString(`"` + name + `":`)
		separator = ','
		err := encoder.Encode(value)
		b.Truncate(b.Len() - len("\n"))
		return err
	}
	for i := range rows {
		if value := rows[i].jsonValue(); value != nil && rows[i].place == Member {
			if err := add(rows[i].name, value); err != nil {
				return "", err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if err := add(name, attributes[name]); err != nil {
			return "", fmt.Errorf("attribute %q: %w", name, err)
		}
	}
	b.WriteByte('}') // locked_at is always before it
	return b.String(), nil
}

// cutBacktrace keeps the newest frames that fit, as whole lines.
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
		return metadata.FormatTime(at)
	}
	return metadata.FormatTime(at) + " " + cut(strings.ToValidUTF8(progress, "�"), metadata.MaxTextBytes)
}

// clip shortens text from outside for use in a sentence.
func clip(s string) string { return text.Clip(s, 40) }

func checkUUID(s string) error {
	if !metadata.IsUUID(s) {
		return fmt.Errorf("%q is not a UUID in lower case", clip(s))
	}
	return nil
}
