package lockrecord

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The most foreign keys and leftovers that the problems of a record name; the rest are counted.
const (
	maxForeign   = 8
	maxLeftovers = 8
)

// Decode reads the keys of one lock, in any order. It never fails: what cannot be read is listed in Problems, and the
// rest of the record is used. Fields that the protocol does not know become attributes; foreign are the keys in the
// record's range that fit no layout.
//
// The size of the record is bounded, whatever the keys contain, and no small text keeps a large value in memory. Only
// Fields are kept whole.
func Decode(lock string, fields []metadata.Field, foreign ...string) metadata.FullRecord {
	d := decoder{}
	d.decode(lock, fields, foreign)
	return d.record
}

// DecodeRecord is [Decode] for readers that keep only the record: it skips backtraces, which are most of a lock's
// bytes. It yields the same for fields that [Brief] has shortened.
func DecodeRecord(lock string, fields []metadata.Field, foreign ...string) metadata.Record {
	d := decoder{brief: true}
	d.decode(lock, fields, foreign)
	return d.record.Record
}

func (d *decoder) decode(lock string, fields []metadata.Field, foreign []string) {
	d.record = metadata.FullRecord{Record: metadata.Record{Name: lock}, Fields: slices.Clone(fields)}
	slices.SortFunc(d.record.Fields, func(a, b metadata.Field) int { return strings.Compare(a.Name, b.Name) })
	if err := metadata.CheckName(lock); err != nil {
		d.problem("name", metadata.ProblemBadName, err.Error())
	}
	d.foreign(foreign)
	d.fields = make([]metadata.Field, len(fields))
	for i, f := range d.record.Fields {
		d.fields[i] = readPart(f, d.brief)
	}
	if i, ok := d.find(FieldUUID); ok {
		d.record.Token = d.fields[i].CreateRevision
	}
	d.leftovers()
	d.missing()
	d.size()
	process := metadata.Process{}
	rows := table(&d.record, &process)
	if i, ok := d.find(FieldMetadata); ok {
		d.members(&rows, d.fields[i])
	}
	for _, f := range d.fields {
		d.key(&rows, f)
	}
	if process != (metadata.Process{}) {
		kept := process // a record without one costs no memory
		d.record.Process = &kept
	}
}

type decoder struct {
	record     metadata.FullRecord
	fields     []metadata.Field // of this hold, as far as they are read
	attributes int              // seen, whether kept or not
	brief      bool             // the backtrace is not needed
}

// leftovers drops keys that an earlier hold left behind.
func (d *decoder) leftovers() {
	left := 0
	for _, f := range d.record.Fields {
		d.record.Revision = max(d.record.Revision, f.ModRevision)
		if !d.isLeftover(f) {
			continue
		}
		if left++; left <= maxLeftovers {
			d.problem(cut(f.Name, metadata.MaxTextBytes), metadata.ProblemLeftover,
				"was written before this hold and is not read")
		}
		if f.Name == FieldAutoUnlockAt {
			d.record.DeadlineRevision = f.ModRevision // removals compare it
		}
	}
	if left > maxLeftovers {
		text := fmt.Sprintf("%d more keys were written before this hold", left-maxLeftovers)
		d.problem("record", metadata.ProblemLeftover, text)
	}
	if left > 0 {
		d.fields = slices.DeleteFunc(d.fields, d.isLeftover)
	}
}

// isLeftover reports whether the field was written before this hold began and therefore says nothing about it. A
// ModRevision of 0 means unknown.
func (d *decoder) isLeftover(f metadata.Field) bool {
	return f.ModRevision > 0 && f.ModRevision < d.record.Token
}

func (d *decoder) problem(field string, reason metadata.ProblemKind, text string) {
	d.record.Problems = append(d.record.Problems, metadata.Problem{Field: field, Kind: reason, Text: text})
}

// key reads one key of the record. It overrides the document's member of that name, which was read before.
func (d *decoder) key(rows *fields, f metadata.Field) {
	row := rows.find(f.Name)
	if row == nil {
		d.attribute(f.Name, f.Value, sizeOf(f))
		return
	}
	switch at := row.pointer.(type) {
	case **metadata.Alive:
		*at = d.alive(f)
	case **metadata.FinishRequest:
		if *at = document[metadata.FinishRequest](d, f); *at != nil {
			(*at).Revision = f.ModRevision
		}
	case **metadata.MoreTime:
		*at = document[metadata.MoreTime](d, f)
	case **metadata.Acknowledgement:
		if *at = document[metadata.Acknowledgement](d, f); *at != nil {
			(*at).Revision = f.ModRevision
		}
	default:
		d.read(row.pointer, f.Name, f.Value, sizeOf(f))
	}
	switch f.Name {
	case FieldUUID:
		if err := checkUUID(f.Value); err != nil {
			d.problem(f.Name, metadata.ProblemBadValue, err.Error())
		}
	case FieldAutoUnlockAt:
		d.record.DeadlineRevision = f.ModRevision
		d.record.Extensions = max(0, f.Version-1)
	}
}

// read reads a value of size bytes from its own key or from the document. The name is the record's, not the row's: a
// problem that kept the row's name would move the row, and with it the whole document, to the heap.
func (d *decoder) read(into any, name, value string, size int) {
	switch at := into.(type) {
	case *string:
		*at = d.text(name, value, size)
	case *int64:
		*at = d.number(name, value)
	case *bool:
		*at = d.boolean(name, value)
	case *time.Time:
		*at = d.time(name, value)
	case *time.Duration:
		*at = d.lockDelay(name, value)
	}
}

func (d *decoder) alive(f metadata.Field) *metadata.Alive {
	at, progress, _ := strings.Cut(f.Value, " ")
	progress = d.text(f.Name, progress, sizeOf(f)-len(f.Value)+len(progress))
	return &metadata.Alive{At: d.time(f.Name, at), Progress: strings.Clone(progress), Revision: f.ModRevision}
}

// document reads a key that a writer other than the holder wrote for this hold; nil if it is for another hold or cannot
// be read.
func document[T metadata.FinishRequest | metadata.MoreTime | metadata.Acknowledgement](d *decoder,
	f metadata.Field) *T {
	if size := sizeOf(f); size > MaxDocumentBytes {
		d.problem(f.Name, metadata.ProblemTooLarge,
			fmt.Sprintf("%d bytes, at most %d are read", size, MaxDocumentBytes))
		return nil
	}
	var document T
	if err := json.Unmarshal([]byte(f.Value), &document); err != nil {
		d.problem(f.Name, metadata.ProblemBadValue, "not the JSON object that belongs here")
		return nil
	}
	var hold struct {
		UUID  string `json:"uuid"`
		Token int64  `json:"token"`
	}
	_ = json.Unmarshal([]byte(f.Value), &hold) // as above
	if i, ok := d.find(FieldUUID); !ok || d.fields[i].Value != hold.UUID || d.record.Token != hold.Token {
		d.problem(f.Name, metadata.ProblemBadValue, "is meant for another hold")
		return nil
	}
	return &document
}

func (d *decoder) members(rows *fields, f metadata.Field) {
	if size := sizeOf(f); size > MaxRecordBytes {
		d.problem(FieldMetadata, metadata.ProblemTooLarge,
			fmt.Sprintf("%d bytes, at most %d are read", size, MaxRecordBytes))
		return
	}
	members, ok := object(f.Value)
	if !ok {
		d.problem(FieldMetadata, metadata.ProblemBadValue, "not a JSON object")
		return
	}
	if !utf8.ValidString(f.Value) {
		d.problem(FieldMetadata, metadata.ProblemBadValue, "not valid UTF-8")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if _, ok := d.find(name); !ok && members[name] != nil {
			d.member(rows, name, members[name])
		}
	}
}

// member reads one member of the metadata document.
func (d *decoder) member(rows *fields, name string, value any) {
	text, ok := flat(value)
	switch row := rows.find(name); {
	case row == nil || row.place == DocumentKey:
		d.attribute(name, value, len(text))
	case row.place != Member:
		d.problem(FieldMetadata, metadata.ProblemBadValue, name+" has to be a key of its own")
	case !ok:
		d.problem(name, metadata.ProblemBadValue, nested)
	default:
		d.read(row.pointer, name, text, len(text))
	}
}

// find returns the index of the key with this field name.
func (d *decoder) find(name string) (int, bool) {
	return slices.BinarySearchFunc(d.fields, name,
		func(f metadata.Field, name string) int { return strings.Compare(f.Name, name) })
}

const nested = "neither text, number nor boolean"

// attribute stores a field that the protocol does not know; size is that of a text.
func (d *decoder) attribute(name string, value any, size int) {
	if d.attributes++; d.attributes > MaxAttributes {
		if d.attributes == MaxAttributes+1 {
			d.problem("attributes", metadata.ProblemTooLarge, fmt.Sprintf("only the first %d are shown", MaxAttributes))
		}
		return
	}
	name = cut(name, metadata.MaxTextBytes)
	text, ok := flat(value)
	if !ok {
		d.problem(name, metadata.ProblemBadValue, nested)
		return
	}
	if d.record.Attributes == nil {
		d.record.Attributes = map[string]any{}
	}
	d.record.Attributes[name] = value
	switch v := value.(type) {
	case string:
		d.record.Attributes[name] = d.text(name, v, size)
	case json.Number:
		if len(v) > maxNumberBytes {
			d.record.Attributes[name] = d.text(name, text, size)
		}
	}
}

// text returns the part of a text that is shown, of size bytes in etcd.
func (d *decoder) text(name, value string, size int) string {
	most := metadata.MaxTextBytes
	if name == FieldBacktrace {
		most = MaxBacktraceBytes
	}
	value = cut(value, most)
	if !utf8.ValidString(value) {
		d.problem(name, metadata.ProblemBadValue, "not valid UTF-8")
	}
	if size > most {
		d.problem(name, metadata.ProblemTooLarge, fmt.Sprintf("%d bytes, only the first %d are shown", size, most))
	}
	return value
}

func (d *decoder) time(name, value string) time.Time {
	t, err := metadata.ParseTime(value)
	if err != nil {
		d.problem(name, metadata.ProblemBadTime, err.Error())
	}
	return t
}

func (d *decoder) number(name, value string) int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		d.problem(name, metadata.ProblemBadValue, fmt.Sprintf("%q is not a number", clip(value)))
		return 0
	}
	return n
}

// boolean reads an unreadable value as true. For detached that is the cautious reading: the end of the process then
// proves nothing.
func (d *decoder) boolean(name, value string) bool {
	if value != "true" && value != "false" {
		d.problem(name, metadata.ProblemBadValue, fmt.Sprintf("%q is neither true nor false", clip(value)))
	}
	return value != "false"
}

func (d *decoder) missing() {
	for _, name := range []string{FieldUUID, FieldAlertAt, FieldAutoUnlockAt} {
		if _, ok := d.find(name); !ok {
			d.problem(name, metadata.ProblemMissing, "missing")
		}
	}
}

func (d *decoder) size() {
	size := 0
	for _, f := range d.record.Fields {
		size += len(f.Name) + sizeOf(f)
	}
	if size > MaxRecordBytes {
		d.problem("record", metadata.ProblemTooLarge,
			fmt.Sprintf("%d bytes, at most %d are allowed", size, MaxRecordBytes))
	}
}

func (d *decoder) foreign(keys []string) {
	for i, key := range keys {
		if i == maxForeign {
			d.problem("record", metadata.ProblemUnknownLayout, fmt.Sprintf("%d more keys fit no layout", len(keys)-i))
			return
		}
		d.problem(cut(key, metadata.MaxTextBytes), metadata.ProblemUnknownLayout, "fits no layout and is left alone")
	}
}

// cut returns a copy of at most n bytes of s, without cutting a character in two.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(text.Cut(s, n))
}
